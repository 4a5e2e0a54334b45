"""The set that a sync is about: the stored events that match, from postings alone wherever those
can tell. The relay's side of a sync and `farthing sync` both take it from here."""

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
from farthing.store.planner import Allowance, ScanTooLong, order
from farthing.store.postings import Postings, id_in, records_of
from farthing.store.table import MAX_BATCH_GET

# Whether an event counts, by its sort key and by the second in which it was written.
Belongs = Callable[[str, int], bool]


class TooManyMembers(Exception):
    """The set is larger than what may be reconciled."""

    def __init__(self, most: int) -> None:
        super().__init__(f"more than {most} events")
        self.most = most


class Members(NamedTuple):
    """Some of the set, column by column."""

    sort_keys: Sequence[str]
    written: Sequence[int]


class _Allowed(NamedTuple):
    """What may be read for the whole of a set, however many filters it has."""

    postings: Allowance
    events: Allowance  # and the index entries that lead to them

    @classmethod
    def by(cls, settings: Settings) -> "_Allowed":
        return cls(Allowance(settings.max_sync_events), Allowance(settings.max_scan))


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
    """What matches any of the filters and may be read by someone authenticated as these keys, each
    event once. TooManyMembers where that takes more reading than is allowed."""
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
def _too_many_over(allowance: Allowance) -> Iterator[None]:
    try:
        yield
    except ScanTooLong:
        raise TooManyMembers(allowance.most) from None


def _from_events(
    agent: Agent,
    filter: Filter,
    pubkeys: frozenset[str],
    belongs: Belongs | None,
    allowance: Allowance,
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
    allowance: Allowance,
) -> Iterator[Members]:
    for page in _readable(agent, pages, pubkeys, allowance):
        if belongs is not None:
            page = page.select(map(belongs, page.sort_keys, page.written))
        yield Members(page.sort_keys, page.written)


def _readable(
    agent: Agent, pages: Iterable[Postings], pubkeys: frozenset[str], allowance: Allowance
) -> Iterator[Postings]:
    """Without the private events that are not for these keys. Where a posting does not show it, the
    event is read, as far as that is allowed."""
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
