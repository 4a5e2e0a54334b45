"""Every verb that a client may send, and the function for each."""

from collections.abc import Mapping

from farthing.nostr.messages import Verb
from farthing.relay.authenticate import auth
from farthing.relay.changes import changes
from farthing.relay.count import count
from farthing.relay.publish import event
from farthing.relay.receive import Answer
from farthing.relay.reconcile import neg_close, neg_msg, neg_open
from farthing.relay.subscribe import close, req

VERBS: Mapping[Verb, Answer] = {
    Verb.EVENT: event,
    Verb.REQ: req,
    Verb.CLOSE: close,
    Verb.COUNT: count,
    Verb.AUTH: auth,
    Verb.CHANGES: changes,
    Verb.NEG_OPEN: neg_open,
    Verb.NEG_MSG: neg_msg,
    Verb.NEG_CLOSE: neg_close,
}
