"""The numbered log and the cursors of those who follow it, below the protocol."""

from itertools import pairwise
from typing import Any

import pytest

from farthing.context import Agent
from farthing.handlers.streams import arrivals
from farthing.nostr.filters import Filter
from farthing.relay.changes import LIVE_CHANGES, push
from farthing.relay.sequence import number_all, number_events
from farthing.store import changes
from farthing.store.changes import AlreadyNumbered, ChangeLog, CounterMoved
from farthing.store.cursors import Cursor, Lease
from farthing.store.memory import MemoryEngine
from farthing.store.sqlite import SqliteEngine
from farthing.store.streams import records_of
from farthing.store.subscriptions import CHANGES, Subscription
from farthing.store.table import Contended, Engine, Page, Query, StoreError, Table
from tests.relay.numbered import Feed, LiveClient, arrival, ask, page_of
from tests.relay.world import START, Client, Clock, connections_of, made, make_agent, signed
from tests.store.faulty import Fault, FaultyEngine, nth

A, B = "a" * 64, "b" * 64
ARN = "arn:aws:dynamodb:local:000000000000:table/farthing-"
NOW_MS = START * 1000
LEASE_MS = 60_000


class TestAppend:
    @pytest.fixture
    def log(self, engine: Engine) -> ChangeLog:
        return ChangeLog(engine)

    def test_as_many_as_fit_into_one_commit(self, log: ChangeLog) -> None:
        most = log.most_at_once
        events = [arrival(made()) for _ in range(most + 5)]

        assert log.append(0, events) == most
        assert log.append(most, events[most:]) == 5

        assert log.counter() == log.last_number() == most + 5
        assert [entry[1:] for entry in log.between(0, log.counter())] == events
        assert log.numbers_of([events[-1].id]).get(events[-1].id) == most + 5
        assert log.numbers_of(["f" * 64]).get("f" * 64) is None

    def test_behind_a_counter_that_has_moved(self, log: ChangeLog) -> None:
        log.append(0, [arrival(made()), arrival(made())])

        for last in (0, 1):
            with pytest.raises(CounterMoved):
                log.append(last, [arrival(made())])

        assert log.counter() == 2

    def test_an_event_is_never_numbered_twice(self, log: ChangeLog) -> None:
        known, new = arrival(made()), arrival(made())
        log.append(0, [known])

        for last in (0, 1):
            with pytest.raises(AlreadyNumbered) as failure:
                log.append(last, [new, known])
            assert failure.value.ids == {known.id}

        assert (log.counter(), log.numbers_of([new.id]).get(new.id)) == (1, None)

    def test_no_chunk_crosses_buckets_and_readers_do(
        self, sqlite: SqliteEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No chunk reaches into the next bucket, and readers go from one to the next."""
        monkeypatch.setattr(changes, "BUCKET", 10)
        agent = make_agent(sqlite, Clock())
        events = [made(pubkey=A if number % 3 else B) for number in range(37)]
        for first in range(0, 37, 7):
            number_events(agent, [arrival(event) for event in events[first : first + 7]])

        log = agent.changes
        assert log.counter() == log.last_number() == 37
        for since in range(38):
            for last in range(since, 38):
                wanted = list(range(since + 1, last + 1))
                assert [entry.number for entry in log.between(since, last)] == wanted
                theirs = [number for number in wanted if (number - 1) % 3]
                assert [entry.number for entry in log.between(since, last, [A])] == theirs
        rows = [sqlite.query(Query(Table.CHANGES, f"log#{bucket}")).rows for bucket in range(4)]
        starts = [[int(row.sk) for row in each] for each in rows]
        assert [each[0] for each in starts] == [1, 11, 21, 31]

    def test_authors_lists_and_the_logs_end(self, sqlite: SqliteEngine) -> None:
        """Both are read, and no entry is in the gap between them or comes twice."""
        agent = make_agent(sqlite, Clock())
        events = [made(pubkey=(A, B, "c" * 64)[number % 3]) for number in range(400)]
        number_events(agent, [arrival(event) for event in events])
        log = agent.changes
        for since in (0, 100, 203, 204, 205, 399):
            wanted = [n for n in range(since + 1, 401) if (n - 1) % 3 < 2]
            assert [entry.number for entry in log.between(since, 400, [A, B])] == wanted

    def test_ephemeral_events_and_duplicates_have_no_number(
        self, sqlite: SqliteEngine, clock: Clock
    ) -> None:
        agent = make_agent(sqlite, clock)
        client, note = Client(agent), signed()
        for event in (note, signed(kind=20001), note):
            client.publish(event)

        records = records_of(sqlite.stream_after(0, 100), ARN)["Records"]
        number_all(agent, arrivals(records))

        assert [entry.id for entry in agent.changes.between(0, 1)] == [note.id]
        assert agent.changes.counter() == 1


class _HalfShown(FaultyEngine):
    """A commit of which the log's items show a few reads later than the counter, or the counter
    later than the log, as DynamoDB's transactions may."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        self.hidden_queries = 0
        self.counter: dict[str, Any] | None = None

    def get(self, table: Table, pk: str, sk: str) -> Any:
        if pk == "counter" and self.counter is not None:
            return self.counter
        return super().get(table, pk, sk)

    def query(self, query: Query) -> Page:
        page = super().query(query)
        if query.table is Table.CHANGES and self.hidden_queries > 0:
            self.hidden_queries -= 1
            shown = [row for row in page.rows if not row.sk.endswith("2")]
            return page._replace(rows=shown)
        return page


class TestHalfShownCommits:
    @pytest.fixture
    def engine_and_client(self, sqlite: SqliteEngine, clock: Clock) -> tuple[_HalfShown, Client]:
        engine = _HalfShown(sqlite)
        agent = make_agent(engine, clock)
        feed = Feed(agent)
        feed.add(made(pubkey=A))
        feed.add(made(pubkey=A), made(pubkey=A))
        feed.add(made(pubkey=A))
        return engine, Client(agent)

    @pytest.mark.parametrize("filter", [{}, {"authors": [A]}])
    @pytest.mark.parametrize("hidden", range(1, 8))
    def test_a_chunk_that_is_late(self, engine_and_client, filter: Any, hidden: int) -> None:
        engine, client = engine_and_client
        engine.hidden_queries = hidden

        assert ask(client, filter).numbers == [1, 2, 3, 4]

    def test_a_chunk_that_does_not_come(self, engine_and_client) -> None:
        engine, client = engine_and_client
        engine.hidden_queries = 10**9

        *events, (*head, reason) = client.send("CHANGES", "s", {})

        assert [frame[3] for frame in events] == [] or events[-1][3] == 1
        assert head == ["CHANGES", "s", "ERR"]
        assert reason == f"error: {Contended('the log is being written')}, try again"

    def test_a_counter_that_is_late(self, engine_and_client) -> None:
        engine, client = engine_and_client
        engine.counter = {"n": 1}

        assert page_of(client.send("CHANGES", "s", {}), "s").last == 4


class TestCursor:
    """One caller at a time serves a live subscription."""

    @pytest.fixture
    def subscription(self, agent: Agent) -> Subscription:
        subscription = Subscription("c", "s", 10, (Filter(),), CHANGES)
        agent.subscriptions.subscribe(subscription, agent.now)
        return subscription

    def lease(self, after_ms: int = 0) -> Lease:
        return Lease(NOW_MS + after_ms, NOW_MS + after_ms + LEASE_MS)

    def test_goes_from_hand_to_hand(self, agent: Agent, subscription: Subscription) -> None:
        cursors = agent.cursors
        first = cursors.begin(subscription, 5, self.lease())
        assert not cursors.leave(subscription, first._replace(number=7))

        second = cursors.take(subscription, self.lease(1))

        assert second == Cursor(7, NOW_MS + 1 + LEASE_MS)
        assert not cursors.leave(subscription, second._replace(number=9))
        assert cursors.take(subscription, self.lease(2)).number == 9

    def test_the_holder_learns_that_others_have_asked_for_the_cursor(
        self, agent: Agent, subscription: Subscription
    ) -> None:
        cursors = agent.cursors
        holder = cursors.begin(subscription, 5, self.lease())
        assert cursors.take(subscription, self.lease(1)) is None
        assert cursors.take(subscription, self.lease(2)) is None

        assert cursors.leave(subscription, holder)

        again = cursors.take(subscription, self.lease(3))
        assert (again.number, again.told) == (5, 2)
        assert not cursors.leave(subscription, again)

    def test_a_cursor_is_free_when_its_lease_has_ended(
        self, agent: Agent, subscription: Subscription
    ) -> None:
        """Whoever held it has crashed, or has no say any more."""
        cursors = agent.cursors
        lost = cursors.begin(subscription, 5, self.lease())
        assert cursors.take(subscription, self.lease(LEASE_MS)) is None

        holder = cursors.take(subscription, self.lease(LEASE_MS + 1))
        assert holder.number == 5
        assert not cursors.leave(subscription, lost._replace(number=6))
        assert cursors.take(subscription, self.lease(LEASE_MS + 2)) is None

        assert cursors.leave(subscription, holder._replace(number=8))
        assert not cursors.leave(subscription, lost._replace(number=6))
        assert cursors.take(subscription, self.lease(LEASE_MS + 3)).number == 8

    @pytest.mark.parametrize("end", ["unsubscribe", "disconnect"])
    def test_goes_with_its_subscription(
        self, agent: Agent, subscription: Subscription, end: str
    ) -> None:
        """And is not made anew by those who come too late."""
        cursors = agent.cursors
        holder = cursors.begin(subscription, 5, self.lease())
        if end == "disconnect":
            agent.sessions.disconnect("c")
        else:
            assert agent.subscriptions.unsubscribe("c", "s", 11, agent.now)

        assert not cursors.leave(subscription, holder)
        assert cursors.take(subscription, self.lease(1)) is None
        assert agent.engine.get(Table.SESSIONS, "s#c#s", "cursor#10") is None

    def test_each_request_has_its_own(self, agent: Agent, subscription: Subscription) -> None:
        later = Subscription("c", "s", 20, (Filter(),), CHANGES)
        cursors = agent.cursors
        cursors.begin(subscription, 5, self.lease())
        mine = cursors.begin(later, 7, self.lease())
        agent.subscriptions.subscribe(later, agent.now)

        cursors.leave(later, mine)

        assert cursors.take(subscription, self.lease(1)) is None
        assert cursors.take(later, self.lease(1)).number == 7


class TestLongPushes:
    def test_no_hold_outlasts_its_lease(self, clock: Clock) -> None:
        """A long backlog for a client that reads slowly is sent in several holds."""
        agent = make_agent(MemoryEngine(clock=clock), clock, changes_seconds=20)
        feed, client = Feed(agent), LiveClient(agent)
        client.watch({})
        feed.add(*(made() for _ in range(450)))
        held: list[int] = []
        take = agent.cursors.take

        def noted(subscription: Subscription, lease: Lease) -> Cursor | None:
            held.append(lease.now_ms)
            return take(subscription, lease)

        def pass_time() -> None:
            clock.now += 0.25

        agent.cursors.take = noted  # type: ignore[method-assign]
        connections_of(agent).before_post = pass_time

        feed.push(feed.entries(449))

        assert [number for number, _ in client.look()] == list(range(1, 451))
        assert len(held) == 5
        assert max(later - earlier for earlier, later in pairwise(held)) < LEASE_MS

    def test_a_close_that_ended_halfway(self, clock: Clock) -> None:
        """The subscription is closed, if not yet tidied away: nothing outlives its CLOSE."""
        engine = FaultyEngine(MemoryEngine(clock=clock))
        agent = make_agent(engine, clock)
        feed, client = Feed(agent), LiveClient(agent)
        client.watch({})
        ((_, subscription),) = LIVE_CHANGES.wanting(agent, [made()])
        engine.plan = nth(0, ["write_batch"], Fault())
        with pytest.raises(StoreError):
            agent.subscriptions.unsubscribe("live", "live", subscription.order + 1, agent.now)
        feed.add(made())

        push(agent, subscription)

        assert client.look() == []

    def test_a_subscription_that_is_gone(self, clock: Clock) -> None:
        agent = make_agent(MemoryEngine(clock=clock), clock)
        push(agent, Subscription("nobody", "s", 2, (Filter(),), CHANGES))

        assert connections_of(agent).posted == []
