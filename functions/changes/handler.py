"""CHANGES: the changes feed (NIP-CF)."""

from farthing.handlers.sockets import message_handler
from farthing.nostr.messages import Verb
from farthing.relay.changes import changes

handler = message_handler({Verb.CHANGES: changes})
