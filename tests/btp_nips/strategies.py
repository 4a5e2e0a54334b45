"""Random messages of every kind, as the codec accepts them."""

from hypothesis import strategies as st

from farthing.btp_nips.messages import (
    Auth,
    Ceilings,
    Close,
    Closed,
    Count,
    Delivery,
    Eose,
    EventMessage,
    Metadata,
    Notice,
    Ok,
    Payment,
    Propagation,
    Purpose,
    Req,
)
from farthing.btp_nips.models import Model
from farthing.btp_nips.positions import NUMBER_MAX, Position
from farthing.nostr.events import MAX_CREATED_AT, Event
from farthing.nostr.filters import Filter

KEYS = ["a" * 64, "b" * 64, "0123456789abcdef" * 4]
AMOUNT = st.integers(0, 2**64 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
SUBSCRIPTION_ID = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=64)
KEY = st.sampled_from(KEYS)
ADDRESS = st.sampled_from(["g.alice", "test1.b.c-d", "example." + "x" * 100])
POSITION = st.builds(Position, st.booleans(), st.integers(0, NUMBER_MAX))
SECOND = st.integers(0, MAX_CREATED_AT)


def maybe(values: st.SearchStrategy) -> st.SearchStrategy:
    return st.none() | values


FILTER = st.builds(
    Filter,
    ids=maybe(st.frozensets(KEY)),
    authors=maybe(st.frozensets(KEY)),
    kinds=maybe(st.frozensets(st.sampled_from([0, 1, 3, 1059, 30023, 65535]))),
    tags=st.fixed_dictionaries({}, optional={"e": st.frozensets(KEY), "t": st.frozensets(TEXT)}),
    since=maybe(SECOND),
    until=maybe(SECOND),
    limit=maybe(st.integers(0, 1000)),
)
FILTERS = st.lists(FILTER, max_size=3).map(tuple)
EVENT = st.builds(
    Event,
    id=KEY,
    pubkey=KEY,
    created_at=SECOND,
    kind=st.integers(0, 65535),
    tags=st.lists(st.lists(TEXT, max_size=3).map(tuple), max_size=3).map(tuple),
    content=TEXT,
    sig=KEY.map(lambda key: key * 2),
)
PAYMENT = st.builds(
    Payment,
    amount=AMOUNT,
    currency=st.sampled_from(["", "USD", "msat", "USD/1e9"]),
    purpose=maybe(st.sampled_from(Purpose)),
    model=maybe(st.sampled_from(Model)),
    ceilings=maybe(st.builds(Ceilings, maybe(AMOUNT), maybe(AMOUNT))),
)
WAYS = st.one_of(
    st.just({}),
    st.builds(lambda to: {"delivery": Delivery.PUSH, "reply_to": to}, ADDRESS),
    st.builds(
        lambda to, pull: {"delivery": Delivery.PULL, "reply_to": to, "pull": pull},
        maybe(ADDRESS),
        maybe(st.integers(1, 50)),
    ),
)
METADATA = st.builds(
    lambda way, **fields: Metadata(**fields, **way),
    WAYS,
    timestamp=SECOND,
    ttl=maybe(st.integers(60, 86400)),
    priority=maybe(st.integers(0, 255)),
    sender=maybe(KEY),
    after=maybe(POSITION),
    window=maybe(st.integers(1, 10)),
    propagate=maybe(st.builds(Propagation, st.integers(1, 3), AMOUNT)),
    path=st.lists(KEY, max_size=3).map(tuple),
    origin=maybe(KEY),
    position=maybe(POSITION),
)
PARTS = {"payment": PAYMENT, "metadata": METADATA}
MESSAGE = st.one_of(
    st.builds(Req, SUBSCRIPTION_ID, FILTERS, resumption_token=maybe(TEXT), **PARTS),
    st.builds(Close, SUBSCRIPTION_ID, **PARTS),
    st.builds(Count, SUBSCRIPTION_ID, FILTERS.filter(bool), **PARTS),
    st.builds(EventMessage, EVENT, subscription_id=maybe(SUBSCRIPTION_ID), **PARTS),
    st.builds(Notice, TEXT, subscription_id=maybe(SUBSCRIPTION_ID), **PARTS),
    st.builds(
        Eose,
        SUBSCRIPTION_ID,
        event_count=maybe(st.integers(0, 500)),
        resumption_token=maybe(TEXT),
        credit=maybe(AMOUNT),
        **PARTS,
    ),
    st.builds(Ok, KEY, st.booleans(), TEXT, **PARTS),
    st.builds(Auth, SUBSCRIPTION_ID, st.binary(min_size=32, max_size=32), **PARTS),
    st.builds(Closed, SUBSCRIPTION_ID, TEXT, **PARTS),
)
