"""The guarantee of the changes feed against a plain list, in random interleavings: a reader that
follows the numbers sees every stored event exactly once, in order, for ever."""

import random
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from farthing.context import Agent
from farthing.handlers.streams import arrivals
from farthing.nostr.events import Event
from farthing.relay.fan_out import push_changes
from farthing.relay.sequence import number_all, number_events
from farthing.store.changes import ChangeLog
from farthing.store.events import EventStore, Outcome
from farthing.store.numbering import Numbering
from farthing.store.spaces import NOSTR
from farthing.store.sqlite import SqliteEngine
from farthing.store.sqlite_outbox import OutboxChange
from farthing.store.streams import records_of
from farthing.store.table import Contended, Engine, StoreError, Table, TransactionCancelled
from tests.nostr.naive import naive_match
from tests.relay.naive import NaiveStore
from tests.relay.numbered import Entry, LiveClient, arrival, follow
from tests.relay.random_worlds import AUTHORS, World
from tests.relay.world import (
    START,
    Client,
    Clock,
    MotoTables,
    connections_of,
    hex_id,
    made,
    make_agent,
)
from tests.store.faulty import Crash, Fault, FaultyEngine, Plan, at, never, nth, seeded

ARN = "arn:aws:dynamodb:local:000000000000:table/farthing-"
READS = ("get", "get_many", "query", "query_many")


def moved() -> TransactionCancelled:
    """What the counter's condition answers when another shard was faster."""
    return TransactionCancelled([True] + [False] * 99, [None] * 100)


class Stream:
    """All records of the events table so far: SQLite's own, or made from what moto holds."""

    def __init__(self, engine: Engine, moto: MotoTables | None) -> None:
        self._engine = engine
        self._moto = moto
        self._seen: dict[tuple[str, str], dict[str, Any]] = {}
        self._changes: list[OutboxChange] = []

    def observe(self) -> None:
        """After every write: what comes and goes between two looks would leave no record."""
        if self._moto is not None:
            self._compare(self._moto)

    def records(self) -> list[dict[str, Any]]:
        if isinstance(self._engine, SqliteEngine):
            last = self._changes[-1].sequence if self._changes else 0
            self._changes += self._engine.stream_after(last, 10_000)
        mine = [change for change in self._changes if change.table is Table.EVENTS]
        return list(records_of(mine, ARN)["Records"])

    def _compare(self, moto: MotoTables) -> None:
        now = {(pk, sk): item for pk, sk, item in moto.items(Table.EVENTS)}
        for key in sorted(now.keys() | self._seen.keys()):
            old, new = self._seen.get(key), now.get(key)
            if old != new:
                self._changes.append(
                    OutboxChange(len(self._changes) + 1, Table.EVENTS, *key, old, new)
                )
        self._seen = now


class ChangesModel(RuleBasedStateMachine):
    """`log` is the plain list: ids in the order of their numbers, of which it has one each."""

    def __init__(
        self, make: Callable[[Clock], AbstractContextManager[tuple[Engine, MotoTables | None]]]
    ) -> None:
        super().__init__()
        self.clock = Clock()
        self._engine = make(self.clock)
        engine, moto = self._engine.__enter__()
        self.faulty = FaultyEngine(engine)
        self.sound = make_agent(engine, self.clock, max_limit=50, max_scan=60)
        self.shaky = replace(self.sound, engine=self.faulty)
        self.stream = Stream(engine, moto)
        self.store = NaiveStore()
        self.deletions = 0
        self.log: list[str] = []
        self.events: dict[str, Event] = {}
        self.reader = Client(self.sound, "reader")
        self.live: list[tuple[LiveClient, int, dict[str, Any]]] = []

    def teardown(self) -> None:
        try:
            self._settle()
        finally:
            self._engine.__exit__(None, None, None)

    # Writers

    @rule(seed=st.integers(0, 2**32), number=st.integers(1, 4))
    def write(self, seed: int, number: int) -> None:
        """Notes, versions, deletions, and now and then one that is there already."""
        for event in World(seed, number, wide=False).events():
            event = replace(event, tags=tuple(t for t in event.tags if t[0] != "expiration"))
            self._save(event)

    @rule(seed=st.integers(0, 2**32))
    def delete(self, seed: int) -> None:
        if self.store.stored:
            target = random.Random(seed).choice(self.store.stored)
            self.deletions += 1
            id = hex_id(self.deletions)
            self._save(made(id=id, kind=5, pubkey=target.pubkey, tags=[["e", target.id]]))

    def _save(self, event: Event) -> None:
        stored = self.sound.events.save(event) is Outcome.STORED
        self.stream.observe()
        assert stored == (self.store.save(event) == "STORED")
        self.events.setdefault(event.id, event)

    # Sequencers

    @rule(data=st.data(), shards=st.integers(1, 3))
    def number(self, data: st.DataObject, shards: int) -> None:
        """Shards one after another, each with records of its own in any order, some repeated."""
        for shard in range(shards):
            records = [
                record for record in self.stream.records()
                if crc32(str(record["dynamodb"]["Keys"]).encode()) % shards == shard
            ]  # fmt: skip
            self._run_sequencer(self._some(data, records), data.draw(self._plans()))

    @rule(data=st.data(), operation=st.integers(0, 3))
    def number_at_once(self, data: st.DataObject, operation: int) -> None:
        """Another shard commits between two operations of this one, with some of the same."""
        records = self.stream.records()
        mine, other = self._some(data, records), self._some(data, records)

        def intrude(count: int, _: str) -> None:
            if count == operation:
                number_all(self.sound, arrivals(other))

        self._run_sequencer(mine, intrude)

    @staticmethod
    def _some(data: st.DataObject, records: list[Any]) -> list[Any]:
        if not records:
            return []
        newest = records[-8:]
        return data.draw(st.lists(st.sampled_from(newest), max_size=10)) + data.draw(
            st.lists(st.sampled_from(records), max_size=4)
        )

    @staticmethod
    def _plans() -> st.SearchStrategy[Plan]:
        faults = [
            Fault(Crash), Fault(Crash, after=True), Fault(StoreError),
            Fault(StoreError, after=True), Fault(moved), Fault(Contended),
        ]  # fmt: skip
        return st.just(never) | st.builds(
            at, st.integers(0, 6), st.sampled_from(faults)
        ) | st.builds(
            lambda seed: seeded(seed, 0.5, [Fault(moved), Fault(Contended)]), st.integers(0, 99)
        )  # fmt: skip

    def _run_sequencer(self, records: list[Any], plan: Plan) -> None:
        wanted = arrivals(records).get(NOSTR, [])
        self.faulty.operations.clear()
        self.faulty.plan = plan
        failed = False
        try:
            number_events(self.shaky, wanted)
        except (StoreError, Crash):
            failed = True
        finally:
            self.faulty.plan = never
        self._extend_log()
        if not failed:
            assert {each.id for each in wanted} <= set(self.log)

    def _extend_log(self) -> None:
        changes = self.sound.changes
        entries = list(changes.between(0, changes.counter()))
        assert [entry.number for entry in entries] == list(range(1, len(entries) + 1))
        ids = [entry.id for entry in entries]
        assert ids[: len(self.log)] == self.log, "a number was given anew"
        for entry in entries[len(self.log) :]:
            event = self.events[entry.id]  # nothing is numbered that was not stored
            assert (entry.pubkey, entry.kind) == (event.pubkey, event.kind)
            assert changes.numbers_of([entry.id]).get(entry.id) == entry.number
        self.log = ids

    @invariant()
    def each_event_has_one_number(self) -> None:
        assert len(set(self.log)) == len(self.log)
        accepted = {event.id for event in self.store.accepted}
        assert set(self.log) <= accepted

    # Readers

    def _expected(self, since: int, filter: dict[str, Any]) -> list[Entry]:
        stored = {event.id: event for event in self.store.stored}
        return [
            (number, id) for number, id in enumerate(self.log, 1)
            if number > since and id in stored and stored[id].kind not in (4, 1059)
            and naive_match(stored[id].as_dict(), filter)
        ]  # fmt: skip

    def _filter(self, seed: int) -> dict[str, Any]:
        filter = World(seed, 30, wide=False).filter()
        return {name: filter[name] for name in ("authors", "kinds", "#t", "#p") if name in filter}

    @rule(seed=st.integers(0, 2**32), limit=st.none() | st.integers(0, 7), data=st.data())
    def read(self, seed: int, limit: int | None, data: st.DataObject) -> None:
        since, filter = data.draw(st.integers(0, len(self.log) + 2)), self._filter(seed)
        if set(filter.get("kinds", [1])) <= {4, 1059} and filter.get("kinds"):
            return  # refused to those who are not authenticated
        asked = {**filter, "since": since} | ({} if limit is None else {"limit": limit})
        expected = [] if limit == 0 else self._expected(since, filter)
        assert follow(self.reader, asked) == expected

    @rule(seed=st.integers(0, 2**32), data=st.data())
    def go_live(self, seed: int, data: st.DataObject) -> None:
        since, filter = data.draw(st.integers(0, len(self.log))), self._filter(seed)
        if len(self.live) == 3 or set(filter.get("kinds", [1])) <= {4, 1059}:
            return
        client = LiveClient(self.sound, f"live-{len(self.live)}")
        client.watch({**filter, "since": since})
        self.live.append((client, since, filter))
        assert client.entries == self._expected(since, filter)[: len(client.entries)]

    @rule(data=st.data(), fault=st.none() | st.integers(0, 8), posting=st.booleans())
    def push(self, data: st.DataObject, fault: int | None, posting: bool) -> None:
        """Entries of the log reach their readers' handler in any order, again, or not at all; and
        the handler fails now and then, at the store or on its way to a client."""
        entries = list(self.sound.changes.between(0, len(self.log)))
        if not entries:
            return
        some = data.draw(st.lists(st.sampled_from(entries[-10:]), min_size=1, max_size=6))
        posts = iter(range(1 << 30))

        def fail() -> None:
            if next(posts) == fault:
                raise ConnectionError

        if posting:
            connections_of(self.sound).before_post = fail
        elif fault is not None:
            self.faulty.plan = nth(fault, READS, Fault(StoreError))
        with suppress(StoreError, ExceptionGroup):
            push_changes(self.shaky, some)
        self.faulty.plan = never
        connections_of(self.sound).before_post = lambda: None

    @invariant()
    def live_readers_see_each_once_in_order(self) -> None:
        for client, since, filter in self.live:
            numbers = [number for number, _ in client.look()]
            assert numbers == sorted(set(numbers))
            for number, id in client.entries:
                assert number > since
                assert self.log[number - 1] == id
                assert naive_match(self.events[id].as_dict(), filter)

    def _settle(self) -> None:
        """All shards come to their end, and all is pushed: then nobody lacks anything."""
        number_all(self.sound, arrivals(self.stream.records()))
        self._extend_log()
        assert set(self.log) == {event.id for event in self.store.accepted}
        entries = list(self.sound.changes.between(0, len(self.log)))
        push_changes(self.sound, entries)
        self.live_readers_see_each_once_in_order()
        for client, since, filter in self.live:
            truncated = [end for end in client.ends if isinstance(end[4], dict)]
            if truncated:
                continue
            assert set(self._expected(since, filter)) <= set(client.entries)
        assert follow(self.reader, {}) == self._expected(0, {})


@contextmanager
def sqlite(clock: Clock) -> Iterator[tuple[Engine, None]]:
    with tempfile.TemporaryDirectory() as folder:
        engine = SqliteEngine(Path(folder), clock=clock)
        yield engine, None
        engine.close()


class OneCommitModel(ChangesModel):
    """On one machine an event has its number when it is stored. Another process, an import say,
    writes to the same file and numbers nothing; its events come from the stream."""

    def __init__(self) -> None:
        super().__init__(sqlite)
        engine = self.sound.engine
        assert isinstance(engine, SqliteEngine)
        self.sound = replace(self.sound, numbering=Numbering(engine))
        self.shaky = replace(self.sound, engine=self.faulty)
        self.reader = Client(self.sound, "reader")
        self.importer = SqliteEngine(engine.directory, clock=self.clock)
        self.imports = False

    def teardown(self) -> None:
        self.importer.close()
        super().teardown()

    @rule(imports=st.booleans())
    def take_turns(self, imports: bool) -> None:
        self.imports = imports

    def _save(self, event: Event) -> None:
        if self.imports:
            outcome = EventStore(self.importer, NOSTR, clock=self.clock).save(event)
        else:
            outcome = self.sound.events.save(event)
        stored = outcome is Outcome.STORED
        assert stored == (self.store.save(event) == "STORED")
        self.events.setdefault(event.id, event)
        self._extend_log()
        if stored and not self.imports:
            assert event.id in self.log


QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]


def test_live_feeds_agree_with_their_model_on_sqlite() -> None:
    run_state_machine_as_test(
        lambda: ChangesModel(sqlite),
        settings=settings(max_examples=60, stateful_step_count=25, suppress_health_check=QUIET),
    )


def test_in_the_commits_of_one_machine() -> None:
    run_state_machine_as_test(
        OneCommitModel,
        settings=settings(max_examples=60, stateful_step_count=25, suppress_health_check=QUIET),
    )


def test_live_feeds_agree_with_their_model_on_dynamodb(moto_tables: MotoTables) -> None:
    @contextmanager
    def moto(clock: Clock) -> Iterator[tuple[Engine, MotoTables]]:
        yield moto_tables.empty(clock), moto_tables

    run_state_machine_as_test(
        lambda: ChangesModel(moto),
        settings=settings(max_examples=6, stateful_step_count=10, suppress_health_check=QUIET),
    )


@pytest.mark.parametrize("seed", range(3))
def test_threads_that_number_the_same_events_at_once(tmp_path: Path, seed: int) -> None:
    """Six containers, each with most of the events, in another order and in other batches."""
    dice = random.Random(seed)
    engine = SqliteEngine(tmp_path)
    agent = make_agent(engine, Clock())
    events = [made(pubkey=dice.choice(AUTHORS), created_at=START) for _ in range(300)]
    errors: list[BaseException] = []
    start = threading.Barrier(6)

    def run(mine: list[Event], agent: Agent) -> None:
        try:
            start.wait()
            while mine:
                batch, mine = mine[:37], mine[37:]
                number_events(agent, [arrival(event) for event in batch])
        except BaseException as error:
            errors.append(error)

    shares = [dice.sample(events, 250) for _ in range(6)]
    threads = [threading.Thread(target=run, args=(share, replace(agent))) for share in shares]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not errors
    log = ChangeLog(engine)
    wanted = {event.id for share in shares for event in share}
    entries = list(log.between(0, log.counter()))
    assert [entry.number for entry in entries] == list(range(1, len(wanted) + 1))
    assert {entry.id for entry in entries} == wanted
    for author in AUTHORS:
        theirs = [entry for entry in entries if entry.pubkey == author]
        assert list(log.between(0, log.counter(), [author])) == theirs
    engine.close()
