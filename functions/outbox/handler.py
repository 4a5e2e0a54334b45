"""On a schedule: broadcast what the owner publishes, and attempt the deliveries that are due."""

from farthing.agent.rounds import deliver_broadcasts
from farthing.handlers.calls import scheduled_handler

handler = scheduled_handler(deliver_broadcasts)
