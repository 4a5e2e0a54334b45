"""AUTH (NIP-42)."""

from farthing.handlers.sockets import message_handler
from farthing.nostr.messages import Verb
from farthing.relay.authenticate import auth

handler = message_handler({Verb.AUTH: auth})
