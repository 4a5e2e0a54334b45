"""$default: messages that the route selection did not recognise. They may have any verb."""

from farthing.handlers.sockets import message_handler
from farthing.relay.verbs import VERBS

handler = message_handler(VERBS)
