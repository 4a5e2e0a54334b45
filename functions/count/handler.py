"""COUNT (NIP-45)."""

from farthing.handlers.sockets import message_handler
from farthing.nostr.messages import Verb
from farthing.relay.count import count

handler = message_handler({Verb.COUNT: count})
