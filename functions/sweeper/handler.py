"""On a schedule: release the holds of packets that have expired, end paid subscriptions."""

from farthing.agent.sweep import sweep
from farthing.handlers.calls import scheduled_handler

handler = scheduled_handler(sweep)
