"""One stream of events between the data folder and another relay, in one direction, until it is
stopped.

Reading uses the relay's changes feed (NIP-CF) if it has one. Otherwise a live subscription is
opened first, and older events are compared (NIP-77) or read page by page. Sending follows our own
changes feed. A checkpoint moves only when the events before it are stored.
"""

import asyncio
import random
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import orjson

from farthing.agent.catching_up import Abilities, abilities_in
from farthing.agent.relay_client import SocketRelays
from farthing.context import Agent
from farthing.nostr.events import MAX_CREATED_AT, Event, InvalidEvent, parse_event
from farthing.nostr.filters import Filter
from farthing.ports.hosts import ANYWHERE
from farthing.ports.relays import RelayFailed
from farthing.relay.members import TooManyMembers, find_members, seal_members
from farthing.relay.visibility import is_visible
from farthing.store.changes import Change
from infra.local.commands.exchange import (
    FETCH_AT_ONCE,
    RATE_LIMITED,
    SEND_AT_ONCE,
    Difference,
    Refusals,
    SyncFailed,
    Uploader,
    Uploads,
    compare,
    fetch,
    in_lots,
    prefix_of,
)
from infra.local.commands.remote import Frame, Remote, RemoteFailed, connected
from infra.local.commands.stream_checkpoints import Checkpoint, Checkpoints
from infra.local.commands.sync_payer import BUDGET_SPENT, SyncPayer
from infra.local.commands.transfer import Importer, ImportReport

_LIVE = "farthing-live"
_PAGE = "farthing-page"
_PAGE_SIZE = 500
_BATCH = 250  # events that are stored at once
_POLL_SECONDS = 0.5  # between two looks at our own numbers
_SETTLE_SECONDS = 0.2  # a batch is stored after so long without a new event
_INFORMATION_SECONDS = 10.0
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 300.0
_REMEMBERED = 10_000  # ids of events that are not sent back to the relay they came from
_MOST_FAULTS = 50  # events of one connection that were not asked for
_MOST_TRIES = 5  # to send events that the relay has refused for now
_CHECKPOINT_SECONDS = 60
_MOST_AUTHOR_LISTS = 100  # above, the whole log is read


class StreamEnded(Exception):
    """This stream cannot go on, and another try would not help; the message says why."""


class RecentIds:
    """The ids of events that have lately come from a relay."""

    def __init__(self) -> None:
        self._ids: OrderedDict[str, None] = OrderedDict()

    def add(self, ids: Iterable[str]) -> None:
        self._ids.update(dict.fromkeys(ids))
        while len(self._ids) > _REMEMBERED:
            self._ids.popitem(last=False)

    def __contains__(self, event_id: str) -> bool:
        return event_id in self._ids


@dataclass
class Stream(ABC):
    """One direction of one relay and filter."""

    agent: Agent
    url: str
    filter: Filter
    remembered: RecentIds
    state: str = "not connected"
    failures: int = 0  # in a row

    direction = ""

    def __post_init__(self) -> None:
        self._checkpoints = Checkpoints(self.agent.engine, self.direction, self.url, self.filter)

    async def stay(self) -> None:
        """Run until cancelled, and connect again when a connection ends."""
        while True:
            try:
                abilities = await asyncio.to_thread(_abilities, self.url)
                async with connected(self.url) as remote:
                    self.state = "catching up"
                    await self.follow(remote, abilities)
            except (RemoteFailed, SyncFailed) as error:
                self.failures += 1
                pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (self.failures - 1))
                pause *= random.uniform(0.5, 1.0)  # noqa: S311 - not all relays' clients at once
                self.state = f"again in {pause:.0f} s: {error}"
                await asyncio.sleep(pause)
            except StreamEnded as error:
                self.state = f"ended: {error}"
                return

    @abstractmethod
    async def follow(self, remote: Remote, abilities: Abilities) -> None:
        """Catch up and then follow new events, over one connection."""

    @property
    @abstractmethod
    def figures(self) -> str:
        """The numbers of events so far, in one line."""

    @property
    @abstractmethod
    def reasons(self) -> Iterable[str]:
        """The reasons why events were not taken."""

    def _is_live(self) -> None:
        self.state, self.failures = "live", 0

    async def _checkpoint(self) -> Checkpoint:
        return await asyncio.to_thread(self._checkpoints.get)

    async def _keep(self, checkpoint: Checkpoint) -> None:
        await asyncio.to_thread(self._checkpoints.keep, checkpoint)

    async def _differences(self, remote: Remote, filter: Filter) -> AsyncIterator[Difference]:
        most = self.agent.settings.max_sync_events
        try:
            ours = await asyncio.to_thread(
                lambda: seal_members(find_members(self.agent, [filter]), most)
            )
        except TooManyMembers as error:
            raise SyncFailed(f"too much to compare: {error}") from None
        async for difference in compare(remote, filter, ours):
            yield difference


@dataclass
class Down(Stream):
    """Fetches the relay's events."""

    importer: Importer = field(kw_only=True)
    storing: asyncio.Lock = field(kw_only=True)  # streams take turns at the importer
    stored: ImportReport = field(default_factory=ImportReport)
    withheld: Refusals = field(default_factory=Refusals)

    direction = "down"

    async def follow(self, remote: Remote, abilities: Abilities) -> None:
        self._waiting: list[Event] = []
        self._faults = 0
        # A changes filter cannot hold these: its `since` is a number.
        without_number = self.filter.as_dict().keys() & {"ids", "since", "until"}
        if abilities.changes and not without_number:
            await self._by_number(remote, abilities)
        else:
            await self._by_time(remote, abilities)

    @property
    def figures(self) -> str:
        stored = self.stored
        return f"{stored.stored} stored, {stored.duplicates} known, {stored.invalid} not taken"

    @property
    def reasons(self) -> Iterable[str]:
        yield from self.withheld
        yield from (f"{number} {reason}" for reason, number in self.stored.reasons.items())

    async def _by_number(self, remote: Remote, abilities: Abilities) -> None:
        number = (await self._checkpoint()).number
        last = await self._changes(remote, MAX_CREATED_AT, keep=False)
        if number is None or last < number:  # first time, or the relay's numbers have started again
            number = 0
            if abilities.negentropy and await self._compared(remote, self.filter):
                number = last
            await self._keep(Checkpoint(number))
        number = await self._changes(remote, number)
        await self._live_changes(remote, number)

    async def _changes(self, remote: Remote, number: int, *, keep: bool = True) -> int:
        """Fetch the stored events above a number. Returns the number to go on from."""
        while True:
            await remote.send("CHANGES", _PAGE, {**self.filter.as_dict(), "since": number})
            async for frame in remote.answers(("CHANGES", _PAGE), ("CLOSED", _PAGE)):
                match frame[2:]:
                    case ["EVENT", int(reached), value, *_]:
                        number = await self._numbered(number, reached, value)
                    case ["EOSE", int(), {"next": int(behind)}, *_]:
                        if behind <= number and not self._waiting:
                            raise RemoteFailed("the relay's changes feed does not go on")
                        number, ends = behind, False
                        break
                    case ["EOSE", int(last), *_]:
                        number, ends = last, True
                        break
                    case _:
                        raise RemoteFailed(f"the relay ends the feed: {_reason(frame)}")
            await self._store()
            if keep:
                await self._keep(Checkpoint(number))
            if ends:
                return number

    async def _numbered(self, number: int, reached: int, value: Any) -> int:
        await self._wait(value)
        if not self._waiting:  # all is stored
            await self._keep(Checkpoint(reached))
        return max(number, reached)

    async def _live_changes(self, remote: Remote, number: int) -> None:
        reached = number

        async def take(frame: Frame) -> None:
            nonlocal reached
            match frame[2:]:
                case ["EVENT", int(at), value, *_]:
                    reached = await self._numbered(reached, at, value)
                case ["EOSE", int(), {"next": int()}, *_]:
                    raise RemoteFailed("the relay could not send all at once")
                case ["EOSE", *_]:
                    self._is_live()
                case _:
                    raise RemoteFailed(f"the relay ends the feed: {_reason(frame)}")

        wanted = {**self.filter.as_dict(), "since": number, "live": True}
        await remote.subscribe(_LIVE, take, "CHANGES", _LIVE, wanted)
        while True:
            if not await remote.listen(_SETTLE_SECONDS) and self._waiting:
                await self._store()
                await self._keep(Checkpoint(reached))

    async def _by_time(self, remote: Remote, abilities: Abilities) -> None:
        seen = (await self._checkpoint()).time
        began = int(time.time())

        async def take(frame: Frame) -> None:
            if frame[0] == "CLOSED":
                raise RemoteFailed(f"the relay ends the subscription: {_reason(frame)}")
            if frame[0] == "EVENT":
                await self._wait(frame[-1])

        # Subscribe first, so that events which come while we catch up are not missed.
        live = {**self.filter.as_dict(), "since": max(self.filter.since or 0, began)}
        await remote.subscribe(_LIVE, take, "REQ", _LIVE, live)
        overlap = self.agent.settings.feed_overlap_seconds
        since = max(self.filter.since or 0, 0 if seen is None else seen - overlap)
        past = replace(self.filter, since=since or None)
        if not (abilities.negentropy and await self._compared(remote, past)):
            await self._pages(remote, past)
        await self._store()
        await self._keep(Checkpoint(time=began))
        self._is_live()
        kept = time.monotonic()
        while True:
            if not await remote.listen(_SETTLE_SECONDS):
                await self._store()
                if time.monotonic() - kept > _CHECKPOINT_SECONDS:
                    await self._keep(Checkpoint(time=int(time.time())))
                    kept = time.monotonic()

    async def _compared(self, remote: Remote, filter: Filter) -> bool:
        """Compare sets and fetch the events that we lack. False if the relay does not compare."""
        try:
            async for difference in self._differences(remote, filter):
                for ids in in_lots(difference.need, FETCH_AT_ONCE):
                    wanted = [event_id.hex() for event_id in ids]
                    for line in await fetch(remote, wanted, self.withheld):
                        await self._wait(orjson.loads(line))
                    await self._store()
        except SyncFailed:
            return False
        return True

    async def _pages(self, remote: Remote, filter: Filter) -> None:
        """Fetch stored events by REQ, newest first."""
        until = min(MAX_CREATED_AT, filter.until or MAX_CREATED_AT)
        while True:
            asked = {**filter.as_dict(), "limit": _PAGE_SIZE}
            if until < MAX_CREATED_AT:  # relays exist that know no time beyond 32 bits
                asked["until"] = until
            await remote.send("REQ", _PAGE, asked)
            times = []
            heads = ("EVENT", _PAGE), ("EOSE", _PAGE), ("CLOSED", _PAGE)
            async for frame in remote.answers(*heads):
                if frame[0] == "CLOSED":
                    raise RemoteFailed(f"the relay refuses the request: {_reason(frame)}")
                if frame[0] == "EOSE":
                    break
                event = await self._wait(frame[-1])
                if event is not None and event.created_at <= until:
                    times.append(event.created_at)
            await remote.send("CLOSE", _PAGE)
            await self._store()
            if not times:
                return
            oldest = min(times)
            # The events of one second may continue on the next page.
            until = oldest if oldest < until else until - 1
            if until < (filter.since or 0):
                return

    async def _wait(self, value: Any) -> Event | None:
        """Add an event to the batch to be stored. Returns it, or None if it was not asked for."""
        event = self._asked(value)
        if event is not None:
            self._waiting.append(event)
            if len(self._waiting) >= _BATCH:
                await self._store()
        return event

    def _asked(self, value: Any) -> Event | None:
        try:
            event = parse_event(value)
        except InvalidEvent:
            event = None
        if event is not None and self.filter.matches(event):
            return event
        self._faults += 1
        if self._faults > _MOST_FAULTS:
            raise RemoteFailed("the relay sends events that were not asked for")
        return None

    async def _store(self) -> None:
        events, self._waiting = self._waiting, []
        if not events:
            return
        self.remembered.add(event.id for event in events)
        known = await asyncio.to_thread(self.agent.events.get_many, [each.id for each in events])
        self.stored.duplicates += sum(event.id in known for event in events)
        lines = [event.to_json().encode() for event in events if event.id not in known]
        async with self.storing:
            await asyncio.to_thread(self.importer.store, lines, self.stored)


@dataclass
class Up(Stream):
    """Sends our stored events to the relay."""

    payer: SyncPayer = field(kw_only=True)
    uploads: Uploads = field(default_factory=Uploads)

    direction = "up"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._uploader = Uploader(self.payer, self.uploads)
        self._tries = 0

    @property
    def figures(self) -> str:
        uploads = self.uploads
        paid = f" ({uploads.paid} of them for {uploads.amount})" if uploads.paid else ""
        return f"{uploads.sent} sent{paid}, {uploads.known} known there"

    @property
    def reasons(self) -> Iterable[str]:
        return self.uploads.refused

    async def follow(self, remote: Remote, abilities: Abilities) -> None:
        number = (await self._checkpoint()).number
        last = await asyncio.to_thread(self.agent.changes.last_number)
        if number is None or last < number:
            number = await self._begin(remote, abilities, last)
        while True:
            last = await asyncio.to_thread(self.agent.changes.last_number)
            while number < last:
                entries = await asyncio.to_thread(self._entries, number, last)
                await self._send(remote, entries)
                number = entries[-1].number if entries else last
                await self._keep(Checkpoint(number))
                self._tries = 0
            self._is_live()
            await remote.listen(_POLL_SECONDS)

    async def _begin(self, remote: Remote, abilities: Abilities, last: int) -> int:
        """Send the events that the relay lacks, once. Returns the number to go on from."""
        if not abilities.negentropy:
            return 0
        try:
            async for difference in self._differences(remote, self.filter):
                for ids in in_lots(difference.have, SEND_AT_ONCE):
                    await self._send_ids(remote, [event_id.hex() for event_id in ids])
        except SyncFailed:
            return 0
        await self._keep(Checkpoint(last))
        return last

    def _entries(self, number: int, last: int) -> list[Change]:
        authors = self.filter.authors
        few = authors is not None and len(authors) <= _MOST_AUTHOR_LISTS
        listed = sorted(authors or ()) if few else None
        return list(islice(self.agent.changes.between(number, last, listed), SEND_AT_ONCE))

    async def _send(self, remote: Remote, entries: Sequence[Change]) -> None:
        kinds = self.filter.kinds
        ids = [each.id for each in entries if kinds is None or each.kind in kinds]
        await self._send_ids(remote, [each for each in ids if each not in self.remembered])

    async def _send_ids(self, remote: Remote, ids: Sequence[str]) -> None:
        stored = await asyncio.to_thread(self.agent.events.get_many, ids)
        events = {id: each for id, each in stored.items() if self._may_go(each.event)}
        failed = await self._uploader.publish(remote, events)
        spent = next((each for each in failed if prefix_of(each) == BUDGET_SPENT), "")
        if spent:
            raise StreamEnded(spent)
        hasty = [reason for reason in failed if _may_pass(reason)]
        if hasty and self._tries < _MOST_TRIES:  # from the checkpoint again
            self._tries += 1
            raise RemoteFailed(hasty[0])

    def _may_go(self, event: Event) -> bool:
        """Private events are not sent, and protected ones may be sent by their author only."""
        public = is_visible(event, frozenset()) and not event.is_protected
        return public and self.filter.matches(event)


def _abilities(url: str) -> Abilities:
    """The relay's abilities. Private addresses are allowed: the operator chose the relay."""
    try:
        return abilities_in(SocketRelays(ANYWHERE).information(url, _INFORMATION_SECONDS))
    except RelayFailed:
        return Abilities()


def _may_pass(reason: str) -> bool:
    """Whether the same event may be taken later: Interledger's temporary errors begin with T."""
    prefix = prefix_of(reason)
    return prefix in (RATE_LIMITED, "error") or (prefix[:1] == "T" and prefix[1:].isdecimal())


def _reason(frame: Frame) -> str:
    return str(frame[-1])[:200]
