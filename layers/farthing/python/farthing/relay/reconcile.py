"""NEG-OPEN, NEG-MSG, NEG-CLOSE: set reconciliation with a client or another relay (NIP-77)."""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import orjson

from farthing.agent import Agent
from farthing.nostr.events import is_hex64
from farthing.nostr.filters import Filter, InvalidFilter, parse_filter
from farthing.nostr.kinds import PRIVATE_KINDS
from farthing.nostr.messages import ClientMessage, check_subscription_id
from farthing.nostr.negentropy import InvalidMessage as InvalidSyncMessage
from farthing.nostr.negentropy import Responder, SealedVector
from farthing.nostr.sync import SyncError, neg_error, neg_message
from farthing.relay.caller import Caller
from farthing.relay.visibility import check_readable, visible_to
from farthing.store.planner import ScanTooLong
from farthing.store.postings import Posting, item_of, sort_key
from farthing.store.sessions import close_order, request_order
from farthing.store.syncs import Sync

# A posting is readable this many seconds after the moment it bears, at the latest.
_SETTLED_SECONDS = 10
# More than that do not fit into the sync's record; the set is then taken as of its second alone.
_MOST_RECENT = 4000


class SyncRefused(Exception):
    def __init__(self, error: SyncError, maximum: int | None = None) -> None:
        super().__init__(error)
        self.error = error
        self.maximum = maximum


def neg_open(agent: Agent, caller: Caller, message: ClientMessage) -> str:
    sync_id = _sync_id(message)
    try:
        filters = _filters(agent, message.parts[1] if len(message.parts) > 1 else None)
        octets = _octets(message.parts[2] if len(message.parts) > 2 else None)
        connection = caller.arrive()
        check_readable(filters, connection.pubkeys)
        open_ids = agent.syncs.open_ids(caller.connection_id)
        if len({*open_ids, sync_id}) > agent.settings.max_syncs:
            raise SyncRefused(SyncError.CLOSED)
        items, sync = _gather(agent, caller, sync_id, filters, connection.pubkeys)
        reply = _reconcile(agent, items, octets)
        if not agent.syncs.open(sync, agent.now):
            raise SyncRefused(SyncError.CLOSED)
        SEALED.put(agent, sync, items)
    except SyncRefused as refused:
        agent.syncs.forget(caller.connection_id, sync_id)
        return neg_error(sync_id, refused.error, refused.maximum)
    return neg_message(sync_id, reply)


def neg_msg(agent: Agent, caller: Caller, message: ClientMessage) -> str:
    sync_id = _sync_id(message)
    try:
        octets = _octets(message.parts[1] if len(message.parts) > 1 else None)
        connection, sync = agent.engine.together(
            caller.arrive, lambda: agent.syncs.visit(caller.connection_id, sync_id, agent.now)
        )
        if sync is None:
            raise SyncRefused(SyncError.CLOSED)
        items = SEALED.get(agent, sync) or _gather_again(agent, sync, connection.pubkeys)
        return neg_message(sync_id, _reconcile(agent, items, octets))
    except SyncRefused as refused:
        agent.syncs.forget(caller.connection_id, sync_id)
        return neg_error(sync_id, refused.error, refused.maximum)


def neg_close(agent: Agent, caller: Caller, message: ClientMessage) -> None:
    sync_id = _sync_id(message)
    agent.engine.together(
        lambda: agent.syncs.close(
            caller.connection_id, sync_id, close_order(caller.time_ms), agent.now
        ),
        caller.arrive,
    )


def _sync_id(message: ClientMessage) -> str:
    sync_id = message.subscription_id()
    check_subscription_id(sync_id)
    return sync_id


def _octets(text: object) -> bytes:
    try:
        return bytes.fromhex(text) if type(text) is str else b""
    except ValueError:
        raise SyncRefused(SyncError.CLOSED) from None


def _filters(agent: Agent, given: object) -> list[Filter]:
    """The filter itself, or those in the content of an event that is named by its id."""
    if is_hex64(given):
        stored = agent.events.get(str(given))
        if stored is None:
            raise SyncRefused(SyncError.FILTER_NOT_FOUND)
        try:
            given = orjson.loads(stored.event.content)
        except orjson.JSONDecodeError:
            raise SyncRefused(SyncError.FILTER_INVALID) from None
    values = given if type(given) is list else [given]
    settings = agent.settings
    if not 1 <= len(values) <= settings.max_filters:
        raise SyncRefused(SyncError.FILTER_INVALID)
    try:
        filters = [parse_filter(value) for value in values]
    except InvalidFilter:
        raise SyncRefused(SyncError.FILTER_INVALID) from None
    if any(filter.value_count() > settings.max_filter_values for filter in filters):
        raise SyncRefused(SyncError.FILTER_INVALID)
    return filters


def _reconcile(agent: Agent, items: SealedVector, octets: bytes) -> bytes:
    try:
        return Responder(items, agent.settings.sync_frame).reconcile(octets)
    except InvalidSyncMessage:
        raise SyncRefused(SyncError.CLOSED) from None


class _Member(NamedTuple):
    sk: str
    written: int


def _gather(
    agent: Agent, caller: Caller, sync_id: str, filters: Sequence[Filter], pubkeys: frozenset[str]
) -> tuple[SealedVector, Sync]:
    opened = agent.now
    recent: list[str] = []

    def members() -> Iterator[str]:
        for sk, written in _members(agent, filters, pubkeys):
            if written > opened - _SETTLED_SECONDS:
                recent.append(sk)
            yield sk

    items = _seal(agent, members())
    named = recent if len(recent) <= _MOST_RECENT else []
    order = request_order(caller.time_ms)
    sync = Sync(
        caller.connection_id, sync_id, order, filters, opened, sorted(set(named)),
        len(items), items.fingerprint(0, len(items)).hex(),
    )  # fmt: skip
    return items, sync


def _gather_again(agent: Agent, sync: Sync, pubkeys: frozenset[str]) -> SealedVector:
    """The set as it was when the sync was opened, from what is stored now."""
    settled = sync.opened - _SETTLED_SECONDS if sync.recent else sync.opened

    def members() -> Iterator[str]:
        for sk, written in _members(agent, sync.filters, pubkeys):
            if written <= settled:
                yield sk
        yield from sync.recent

    items = _seal(agent, members())
    if items.fingerprint(0, len(items)).hex() != sync.fingerprint:
        raise SyncRefused(
            SyncError.CLOSED
        )  # something has been deleted meanwhile: the client starts anew
    SEALED.put(agent, sync, items)
    return items


def _seal(agent: Agent, members: Iterator[str]) -> SealedVector:
    most = agent.settings.max_sync_events
    try:
        return SealedVector.seal(map(item_of, _limited(members, most)))
    except ScanTooLong:
        raise SyncRefused(SyncError.RESULTS_TOO_BIG, most) from None


def _limited(members: Iterator[str], most: int) -> Iterator[str]:
    for number, sk in enumerate(members):
        if number >= most:
            raise SyncRefused(SyncError.RESULTS_TOO_BIG, most)
        yield sk


def _members(agent: Agent, filters: Sequence[Filter], pubkeys: frozenset[str]) -> Iterator[_Member]:
    """Sort keys of the events that match, from postings alone wherever those can tell."""
    members = _matches(agent, filters, pubkeys)
    if len(filters) == 1 and all(len(values) == 1 for values in filters[0].tags.values()):
        return members  # no two lists have an event in common
    return iter({member.sk: member for member in members}.values())


def _matches(agent: Agent, filters: Sequence[Filter], pubkeys: frozenset[str]) -> Iterator[_Member]:
    for filter in filters:
        postings = agent.reader.scan(filter)
        if postings is None:
            for event in agent.reader.find(filter, visible_to(pubkeys)):
                yield _Member(sort_key(event.created_at, event.id), event.written)
        else:
            for posting in postings:
                if posting.kind not in PRIVATE_KINDS or _is_readable(agent, posting, pubkeys):
                    yield _Member(posting.sk, posting.written)


def _is_readable(agent: Agent, posting: Posting, pubkeys: frozenset[str]) -> bool:
    if not pubkeys:
        return False
    stored = agent.events.get(posting.id)
    return stored is not None and visible_to(pubkeys)(stored)


class SealedSets:
    """Sets of syncs that this container has answered lately, within a bound on their sizes."""

    def __init__(self) -> None:
        self._sets: OrderedDict[tuple[str, str, int], SealedVector] = OrderedDict()
        self._mutex = threading.Lock()

    def get(self, agent: Agent, sync: Sync) -> SealedVector | None:
        key = (sync.connection_id, sync.id, sync.order)
        with self._mutex:
            items = self._sets.get(key)
            if items is not None:
                self._sets.move_to_end(key)
        return items

    def put(self, agent: Agent, sync: Sync, items: SealedVector) -> None:
        with self._mutex:
            self._sets[sync.connection_id, sync.id, sync.order] = items
            while sum(map(len, self._sets.values())) > agent.settings.max_sync_events:
                if len(self._sets) == 1:
                    break
                self._sets.popitem(last=False)

    def clear(self) -> None:
        with self._mutex:
            self._sets.clear()


SEALED = SealedSets()
