"""EVENT: publish."""

from farthing.handlers.sockets import message_handler
from farthing.nostr.messages import Verb
from farthing.relay.publish import event

handler = message_handler({Verb.EVENT: event})
