"""CLOSE: end a subscription."""

from farthing.handlers.sockets import message_handler
from farthing.nostr.messages import Verb
from farthing.relay.subscribe import close

handler = message_handler({Verb.CLOSE: close})
