"""On a schedule: release the holds of packets that have expired."""

from farthing.agent.sweep import release_holds
from farthing.handlers.calls import scheduled_handler

handler = scheduled_handler(release_holds)
