"""NEG-OPEN, NEG-MSG, NEG-CLOSE: set reconciliation (NIP-77)."""

from farthing.handlers.sockets import message_handler
from farthing.nostr.messages import Verb
from farthing.relay.reconcile import neg_close, neg_msg, neg_open

handler = message_handler(
    {Verb.NEG_OPEN: neg_open, Verb.NEG_MSG: neg_msg, Verb.NEG_CLOSE: neg_close}
)
