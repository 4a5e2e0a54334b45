"""On a schedule, and once after a deployment: what the agent does by itself."""

from farthing.agent.upkeep import keep_up
from farthing.handlers.calls import scheduled_handler

handler = scheduled_handler(keep_up)
