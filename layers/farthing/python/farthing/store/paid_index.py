"""The index of paid subscriptions. It is a separate module, because every function that stores an
event reads the index, and few functions need the rest of paid subscriptions."""

from typing import Final

from farthing.store.spaces import NOSTR
from farthing.store.subscription_index import Index
from farthing.store.table import Table

# Leads from a new event to the subscriptions to wake. Only subscriptions by push have hints: a
# subscriber by pull asks for events.
PAID_INDEX: Final = Index(Table.LEDGER, "paid-wanted", NOSTR, listed=True)
