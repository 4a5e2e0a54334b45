"""REQ: subscribe."""

from farthing.handlers.sockets import message_handler
from farthing.nostr.messages import Verb
from farthing.relay.subscribe import req

handler = message_handler({Verb.REQ: req})
