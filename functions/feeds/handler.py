"""On a schedule: read events that followed keys have published since the last run."""

from farthing.agent.feeds import read_feeds
from farthing.handlers.calls import scheduled_handler

handler = scheduled_handler(read_feeds)
