"""$default: whatever the route selection did not recognise, which may be any verb at all."""

from farthing.handlers.sockets import message_handler
from farthing.relay.verbs import VERBS

handler = message_handler(VERBS)
