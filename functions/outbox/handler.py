"""On a schedule: wake the outbox for deliveries that are due and got no wake."""

from farthing.agent.broadcast import wake_outbox
from farthing.handlers.calls import scheduled_handler

handler = scheduled_handler(wake_outbox)
