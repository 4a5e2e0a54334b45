"""On a schedule: read what followed keys have written since the last look."""

from farthing.agent.rounds import read_feeds
from farthing.handlers.calls import scheduled_handler

handler = scheduled_handler(read_feeds)
