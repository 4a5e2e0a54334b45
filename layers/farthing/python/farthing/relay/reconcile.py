"""NEG-OPEN, NEG-MSG, NEG-CLOSE: set reconciliation with a client or another relay (NIP-77).

Any container answers any message. The container that opened a sync has its set in memory. Another
container reads the set again from the postings. If events of the set have been deleted meanwhile,
the sync is closed. Storing the set instead would be cheaper only from the seventh change of
container on, at the prices of DynamoDB, where a write unit costs as much as five read units
(`python -m tests.bench negentropy_server`):

    events     to open, or read again     to write a snapshot     to read it
    10,000     385 read units             391 write units         99 read units
    100,000    3,805 read units           3,908 write units       985 read units
"""

import threading
from binascii import Error as NotHex
from binascii import unhexlify
from collections.abc import Iterator, Sequence

import orjson

from farthing.context import Agent
from farthing.nostr.events import is_hex64
from farthing.nostr.filters import Filter, InvalidFilter, parse_filter
from farthing.nostr.messages import ClientMessage, check_subscription_id
from farthing.nostr.negentropy import InvalidNegentropy, Responder, SealedVector
from farthing.nostr.negentropy.reconcile import MIN_FRAME_LIMIT
from farthing.nostr.sync import SyncError, neg_error, neg_message
from farthing.relay.caller import Caller
from farthing.relay.members import Members, TooManyMembers, find_members, seal_members
from farthing.relay.sealed_sets import SEALED
from farthing.relay.visibility import check_readable, visible_to
from farthing.store.postings import id_in, records_of
from farthing.store.subscriptions import close_order, request_order
from farthing.store.syncs import Sync, marks_of, settled_at

# Limit of postings written since a sync was opened whose events are read to learn their age.
_MOST_REWRITTEN = 4000

# In a process with many threads, only so many sets are made at a time, to limit memory.
_MAKING = threading.BoundedSemaphore(2)
_NOTHING = SealedVector(b"")


class SyncRefused(Exception):
    def __init__(self, error: SyncError, maximum: int | None = None) -> None:
        super().__init__(error)
        self.error = error
        self.maximum = maximum


def neg_open(agent: Agent, caller: Caller, message: ClientMessage) -> str | None:
    sync_id = _sync_id(message)
    try:
        given = message.parts[1] if len(message.parts) > 1 else None
        filters = [] if is_hex64(given) else _parse_filters(agent, given)
        octets = _octets(agent, message.parts[2] if len(message.parts) > 2 else None)
        connection = caller.arrive()
        if is_hex64(given):
            filters = _stored_filters(agent, str(given), connection.pubkeys)
        check_readable(filters, connection.pubkeys)
        _check_number(agent, caller, sync_id)
        sync, items = _read_set(agent, caller, sync_id, filters, connection.pubkeys)
        in_force = agent.syncs.open(sync, agent.now)
        if in_force > close_order(caller.time_ms):
            return None  # a later message has replaced or closed the sync, and is answered
        if in_force > sync.order:
            raise SyncRefused(SyncError.CLOSED)  # by a close of the same millisecond
        _keep(agent, sync, items)
        return neg_message(sync_id, _reconcile(agent, items, octets))
    except SyncRefused as refused:
        _end(agent, caller, sync_id)
        return neg_error(sync_id, refused.error, refused.maximum)
    except Exception:
        _end(agent, caller, sync_id)  # the client is about to be told that the sync is closed
        raise


def neg_msg(agent: Agent, caller: Caller, message: ClientMessage) -> str | None:
    sync_id = _sync_id(message)
    try:
        octets = _octets(agent, message.parts[1] if len(message.parts) > 1 else None)
        _, sync = agent.engine.together(
            caller.arrive, lambda: agent.syncs.visit(caller.connection_id, sync_id, agent.now)
        )
        if sync is None:
            SEALED.forget(caller.connection_id, sync_id)
            return neg_error(sync_id, SyncError.CLOSED)
        if sync.order > request_order(caller.time_ms):
            return None  # the message belongs to a sync that was replaced meanwhile
        items = SEALED.get(sync, _until(agent))
        if items is None:
            items = _read_set_again(agent, sync)
            _keep(agent, sync, items)
        return neg_message(sync_id, _reconcile(agent, items, octets))
    except SyncRefused as refused:
        _end(agent, caller, sync_id)
        return neg_error(sync_id, refused.error, refused.maximum)
    except Exception:
        _end(agent, caller, sync_id)
        raise


def neg_close(agent: Agent, caller: Caller, message: ClientMessage) -> None:
    sync_id = _sync_id(message)
    agent.engine.together(lambda: _end(agent, caller, sync_id), caller.arrive)


def _end(agent: Agent, caller: Caller, sync_id: str) -> None:
    SEALED.forget(caller.connection_id, sync_id)
    agent.syncs.close(caller.connection_id, sync_id, close_order(caller.time_ms), agent.now)


def _keep(agent: Agent, sync: Sync, items: SealedVector) -> None:
    SEALED.forget_idle(agent.now)
    SEALED.put(sync, items, _until(agent), agent.settings.max_sync_events)


def _until(agent: Agent) -> int:
    return agent.now + agent.settings.sync_seconds


def _sync_id(message: ClientMessage) -> str:
    sync_id = message.subscription_id()
    check_subscription_id(sync_id)
    return sync_id


def _octets(agent: Agent, text: object) -> bytes:
    """The decoded message, fully checked before any read for it."""
    try:
        octets = unhexlify(text) if type(text) is str else b""
    except (NotHex, ValueError):
        raise SyncRefused(SyncError.CLOSED) from None
    _reconcile(agent, _NOTHING, octets)
    return octets


def _stored_filters(agent: Agent, event_id: str, pubkeys: frozenset[str]) -> list[Filter]:
    """The filters in the content of an event."""
    stored = agent.events.get(event_id)
    if stored is None or not visible_to(pubkeys)(stored):
        raise SyncRefused(SyncError.FILTER_NOT_FOUND)
    try:
        return _parse_filters(agent, orjson.loads(stored.event.content))
    except orjson.JSONDecodeError:
        raise SyncRefused(SyncError.FILTER_INVALID) from None


def _parse_filters(agent: Agent, given: object) -> list[Filter]:
    """A filter, or several in an array."""
    values = given if type(given) is list else [given]
    settings = agent.settings
    if not 1 <= len(values) <= settings.max_filters:
        raise SyncRefused(SyncError.FILTER_INVALID)
    try:
        filters = [parse_filter(value) for value in values]
    except InvalidFilter:
        raise SyncRefused(SyncError.FILTER_INVALID) from None
    if sum(filter.value_count() for filter in filters) > settings.max_filter_values:
        raise SyncRefused(SyncError.FILTER_INVALID)
    return filters


def _check_number(agent: Agent, caller: Caller, sync_id: str) -> None:
    open_ids = agent.syncs.open_ids(caller.connection_id)
    if len({*open_ids, sync_id}) > agent.settings.max_syncs:
        raise SyncRefused(SyncError.CLOSED)


def _reconcile(agent: Agent, items: SealedVector, octets: bytes) -> bytes:
    limit = agent.settings.sync_frame
    try:
        return Responder(items, max(limit, MIN_FRAME_LIMIT) if limit else 0).reconcile(octets)
    except InvalidNegentropy:
        raise SyncRefused(SyncError.CLOSED) from None


def _read_set(
    agent: Agent, caller: Caller, sync_id: str, filters: Sequence[Filter], pubkeys: frozenset[str]
) -> tuple[Sync, SealedVector]:
    opened = agent.now
    recent: list[str] = []

    def noting_recent() -> Iterator[Members]:
        for batch in find_members(agent, filters, pubkeys):
            if max(batch.written, default=0) > settled_at(opened):
                rows = zip(*batch, strict=True)
                recent.extend(sk for sk, written in rows if written > settled_at(opened))
            yield batch

    items = _seal(agent, noting_recent())
    order = request_order(caller.time_ms)
    sync = Sync(
        caller.connection_id, sync_id, order, filters, pubkeys, opened, marks_of(recent),
        _fingerprint(items),
    )  # fmt: skip
    return sync, items


def _read_set_again(agent: Agent, sync: Sync) -> SealedVector:
    """The set as it was when the sync was opened, from what is stored now."""
    settled = sync.settled
    later: list[str] = []

    def belongs(sk: str, written: int) -> bool:
        if written <= settled or sync.names(sk):
            return True
        if len(later) <= _MOST_REWRITTEN:
            later.append(sk)
        return False

    items = _seal(agent, find_members(agent, sync.filters, sync.pubkeys, belongs))
    if _fingerprint(items) != sync.fingerprint and later:
        older = _rewritten(agent, sync, later)
        items = SealedVector.seal_records(bytearray(items.to_bytes()) + records_of(older))
    if _fingerprint(items) != sync.fingerprint:
        # An event was deleted meanwhile: the client must start again.
        raise SyncRefused(SyncError.CLOSED)
    return items


def _rewritten(agent: Agent, sync: Sync, later: Sequence[str]) -> list[str]:
    """Among the postings written since the sync was opened, those of events that were stored
    before: an event that is sent again has its postings written again."""
    if len(later) > _MOST_REWRITTEN:
        return []
    stored = agent.events.get_many(map(id_in, later))
    return [
        sk for sk in dict.fromkeys(later)
        if id_in(sk) in stored and stored[id_in(sk)].written <= sync.settled
    ]  # fmt: skip


def _seal(agent: Agent, batches: Iterator[Members]) -> SealedVector:
    try:
        with _MAKING:
            return seal_members(batches, agent.settings.max_sync_events)
    except TooManyMembers as error:
        raise SyncRefused(SyncError.RESULTS_TOO_BIG, error.most) from None


def _fingerprint(items: SealedVector) -> str:
    return items.fingerprint(0, len(items)).hex()
