"""The set of events for a sync: the stored events that match. Postings alone decide wherever
possible. The relay's side of a sync and `farthing sync` both use this module."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple

from farthing.context import Agent
from farthing.nostr.filters import Filter
from farthing.nostr.kinds import PRIVATE_KINDS
from farthing.nostr.negentropy import SealedVector
from farthing.relay.visibility import visible_to
from farthing.settings import Settings
from farthing.store.events import StoredEvent
from farthing.store.planner import ScanAllowance, ScanTooLong
from farthing.store.postings import Postings, id_in, records_of
from farthing.store.reader import order
from farthing.store.table import MAX_BATCH_GET

# Whether an event belongs to the set, by its sort key and by the second in which it was written.
Belongs = Callable[[str, int], bool]


class TooManyMembers(Exception):
    """The set is larger than what may be reconciled."""

    def __init__(self, most: int) -> None:
        super().__init__(f"more than {most} events")
        self.most = most


class Members(NamedTuple):
    """A part of the set, column by column."""

    sort_keys: Sequence[str]
    written: Sequence[int]


class _Allowed(NamedTuple):
    """The limits of reading for a whole set, over all its filters."""

    postings: ScanAllowance
    events: ScanAllowance  # and the index entries that lead to them

    @classmethod
    def by(cls, settings: Settings) -> "_Allowed":
        return cls(ScanAllowance(settings.max_sync_events), ScanAllowance(settings.max_scan))


def seal_members(batches: Iterable[Members], most: int) -> SealedVector:
    records = bytearray()
    count = 0
    for batch in batches:
        count += len(batch.sort_keys)
        if count > most:
            raise TooManyMembers(most)
        records += records_of(batch.sort_keys)
    return SealedVector.seal_records(records)


def find_members(
    agent: Agent,
    filters: Sequence[Filter],
    pubkeys: frozenset[str] = frozenset(),
    belongs: Belongs | None = None,
) -> Iterator[Members]:
    """The events that match any of the filters and are visible to a client authenticated as these
    keys, each once. Raises TooManyMembers if the reading exceeds its limits."""
    allowed = _Allowed.by(agent.settings)
    batches = (
        batch for filter in filters for batch in _matches(agent, filter, pubkeys, belongs, allowed)
    )
    if len(filters) == 1 and all(len(values) == 1 for values in filters[0].tags.values()):
        return batches  # no two lists have an event in common
    return _distinct(batches)


def _distinct(batches: Iterable[Members]) -> Iterator[Members]:
    seen: set[str] = set()
    for batch in batches:
        rows = dict(zip(*batch, strict=True))
        for sk in seen.intersection(rows):
            del rows[sk]
        seen.update(rows)
        yield Members(list(rows), list(rows.values()))


def _matches(
    agent: Agent,
    filter: Filter,
    pubkeys: frozenset[str],
    belongs: Belongs | None,
    allowed: _Allowed,
) -> Iterator[Members]:
    pages = agent.reader.scan(filter, allowed.postings)
    if pages is None:
        with _too_many_over(allowed.events):
            yield from _from_events(agent, filter, pubkeys, belongs, allowed.events)
    else:
        with _too_many_over(allowed.postings):
            yield from _from_postings(agent, pages, pubkeys, belongs, allowed.events)


@contextmanager
def _too_many_over(allowance: ScanAllowance) -> Iterator[None]:
    try:
        yield
    except ScanTooLong:
        raise TooManyMembers(allowance.most) from None


def _from_events(
    agent: Agent,
    filter: Filter,
    pubkeys: frozenset[str],
    belongs: Belongs | None,
    allowance: ScanAllowance,
) -> Iterator[Members]:
    visible = visible_to(pubkeys)

    def counts(event: StoredEvent) -> bool:
        return visible(event) and (belongs is None or belongs(order(event), event.written))

    found = agent.reader.find(filter, counts, allowance)
    while batch := list(islice(found, MAX_BATCH_GET)):
        yield Members([order(event) for event in batch], [event.written for event in batch])


def _from_postings(
    agent: Agent,
    pages: Iterable[Postings],
    pubkeys: frozenset[str],
    belongs: Belongs | None,
    allowance: ScanAllowance,
) -> Iterator[Members]:
    for page in _readable(agent, pages, pubkeys, allowance):
        if belongs is not None:
            page = page.select(map(belongs, page.sort_keys, page.written))
        yield Members(page.sort_keys, page.written)


def _readable(
    agent: Agent, pages: Iterable[Postings], pubkeys: frozenset[str], allowance: ScanAllowance
) -> Iterator[Postings]:
    """The members without private events of other keys. If a posting does not show whether an event
    is private, the event is read, within the limits."""
    visible = visible_to(pubkeys)
    for page in pages:
        if PRIVATE_KINDS.isdisjoint(page.kinds):
            yield page
            continue
        readable = [
            kind not in PRIVATE_KINDS or pubkey in pubkeys
            for kind, pubkey in zip(page.kinds, page.pubkeys, strict=True)
        ]
        yield page.select(readable)
        if pubkeys:
            private = page.select(not each for each in readable)
            with _too_many_over(allowance):
                allowance.spend(len(private.sort_keys))
            ids = [id_in(sk) for sk in private.sort_keys]
            stored = agent.events.get_many(ids)
            yield private.select(id in stored and visible(stored[id]) for id in ids)
