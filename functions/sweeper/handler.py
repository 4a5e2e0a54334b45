"""On a schedule: release holds of expired packets, and end expired paid subscriptions."""

from farthing.agent.sweep import sweep
from farthing.handlers.calls import scheduled_handler

handler = scheduled_handler(sweep)
