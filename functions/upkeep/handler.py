"""On a schedule, and once after a deployment: the agent's regular work."""

from farthing.agent.upkeep import run_duties
from farthing.handlers.calls import scheduled_handler

handler = scheduled_handler(run_duties)
