"""CHANGES with `live`: from the snapshot on, no gap and no repeat, whatever happens meanwhile."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from farthing.context import Agent
from farthing.nostr.events import public_key_of
from farthing.ports.connections import Delivery
from farthing.store.memory import MemoryEngine
from farthing.store.table import Engine, StoreError
from tests.relay.numbered import Entry, Feed, LiveClient, Moments
from tests.relay.stepping import MirroringEngine, interleave
from tests.relay.world import ALICE, BOB, Client, Clock, connections_of, made, make_agent, signed
from tests.store.faulty import Fault

LEASE_SECONDS = 60
A, B = "a" * 64, "b" * 64


def all_of(feed: Feed) -> list[Entry]:
    return [(entry.number, entry.id) for entry in feed.entries()]


class TestLive:
    @pytest.fixture
    def feed(self, agent: Agent) -> Feed:
        return Feed(agent)

    def test_goes_on_from_the_snapshot(self, feed: Feed, agent: Agent) -> None:
        feed.add(made(), made())
        client = LiveClient(agent)
        client.watch({"since": 1})
        assert client.ends == [["CHANGES", "live", "EOSE", 2, 1]]

        feed.publish(made(), made())
        feed.publish(made())

        client.check(all_of(feed)[1:])

    def test_one_that_was_not_pushed_comes_before_the_next(self, feed: Feed, agent: Agent) -> None:
        client = LiveClient(agent)
        client.watch({})
        feed.add(made())

        feed.publish(made())

        client.check(all_of(feed))

    def test_pushed_twice_and_out_of_order(self, feed: Feed, agent: Agent) -> None:
        client = LiveClient(agent)
        client.watch({})
        first, second, third = (feed.add(made()) for _ in range(3))

        for entries in (third, first, second, first, third):
            feed.push(entries)

        client.check(all_of(feed))

    def test_only_matching_changes_are_pushed(self, feed: Feed, agent: Agent) -> None:
        client = LiveClient(agent)
        client.watch({"authors": [A], "#t": ["x"], "kinds": [1]})
        tags = [["t", "x"]]

        feed.publish(made(pubkey=A), made(pubkey=A, tags=tags), made(pubkey=B, tags=tags))
        feed.publish(made(pubkey=A, tags=tags, kind=7), made(pubkey=A, tags=tags))

        client.check([all_of(feed)[1], all_of(feed)[4]])

    def test_deleted_before_it_was_pushed(self, feed: Feed, agent: Agent) -> None:
        client = LiveClient(agent)
        client.watch({})
        note = made(pubkey=A)
        entries = feed.add(note)
        feed.add(made(pubkey=A, kind=5, tags=[["e", note.id]]))

        feed.push(entries)
        feed.push(feed.entries())

        client.check(all_of(feed)[1:])

    def test_private_ones_to_those_they_name(self, feed: Feed, agent: Agent) -> None:
        stranger, reader = LiveClient(agent, "stranger"), LiveClient(agent, "reader")
        for client in (stranger, reader):
            client.watch({})
        reader.authenticate(BOB)

        feed.publish(signed(ALICE, kind=4, tags=[["p", public_key_of(BOB)]]))
        feed.publish(made())

        reader.check(all_of(feed))
        stranger.check(all_of(feed)[1:])

    def test_the_limit_is_for_what_is_stored(self, feed: Feed, agent: Agent) -> None:
        feed.add(made(), made())
        client = LiveClient(agent)
        client.watch({"limit": 1})
        *_, details, _before = client.ends[0]
        assert details == {"truncated": True, "next": 1}

        feed.publish(made(), made())

        assert [number for number, _ in client.look()] == [1, 3, 4]

    def test_a_live_feed_begins_above_its_since(self, feed: Feed, agent: Agent) -> None:
        client = LiveClient(agent)
        client.watch({"since": 2})

        for _ in range(4):
            feed.publish(made())

        assert [number for number, _ in client.look()] == [3, 4]

    def test_expired_subscriptions_do_not_hide_open_ones(
        self, feed: Feed, agent: Agent, clock: Clock
    ) -> None:
        """DynamoDB keeps them for a while; whoever is still there is behind them."""
        for number in range(12):
            LiveClient(agent, f"gone-{number:02}").watch({})
        clock.now += agent.settings.connection_seconds + 1
        client = LiveClient(agent, "here")
        client.watch({})

        feed.publish(made())

        client.check(all_of(feed))

    @pytest.mark.parametrize("last", [("CLOSE",), ("REQ", {}), ("CHANGES", {"kinds": 1})])
    def test_close_or_another_request_ends_a_live_feed(
        self, feed: Feed, agent: Agent, last: tuple[Any, ...]
    ) -> None:
        client = LiveClient(agent)
        client.watch({})
        verb, *parts = last
        client.send(verb, "live", *parts)

        feed.publish(made())

        assert client.look() == []

    def test_the_later_request_of_an_id_counts(self, feed: Feed, agent: Agent) -> None:
        client = LiveClient(agent)
        client.watch({"kinds": [7]})
        client.watch({"kinds": [1]})

        feed.publish(made(kind=7), made(kind=1))

        assert client.look() == all_of(feed)[1:]

    def test_an_overtaken_request_is_not_answered(self, feed: Feed, agent: Agent) -> None:
        client = LiveClient(agent)
        now = int(agent.clock() * 1000)
        client.watch({"kinds": [1]}, time_ms=now + 50)
        client.watch({"kinds": [7]}, time_ms=now + 40)

        feed.publish(made(kind=7), made(kind=1))

        client.check(all_of(feed)[1:])


class TestEveryMoment:
    """Something happens between two steps of a request or a push, at each place where it can."""

    @pytest.fixture
    def fresh(self, clock: Clock) -> Callable[[], tuple[Moments, Feed, LiveClient]]:
        def make() -> tuple[Moments, Feed, LiveClient]:
            moments = Moments(MemoryEngine(clock=clock), clock)
            return moments, Feed(moments.other), LiveClient(moments.agent)

        return make

    def test_events_numbered_and_pushed_during_the_replay(self, fresh) -> None:
        def replay(numbered_at: int, pushed_at: int, filter: dict[str, Any]) -> int:
            moments, feed, client = fresh()
            feed.add(made(), made(), made())
            new: list[Any] = []
            moments.begin(
                {
                    numbered_at: lambda: new.extend(feed.add(made(), made())),
                    pushed_at: lambda: feed.push(new),
                }
                if numbered_at != pushed_at
                else {pushed_at: lambda: feed.publish(made(), made())}
            )
            client.watch(filter)
            points = len(moments.passed)
            client.check(all_of(feed))
            moments.begin()
            feed.publish(made())
            client.check(all_of(feed))
            return points

        for filter in ({}, {"authors": [A]}):
            points = replay(-1, -1, filter)
            assert points > 12
            for pushed_at in range(points):
                for numbered_at in range(pushed_at + 1):
                    replay(numbered_at, pushed_at, filter)

    def test_another_push_during_a_push(self, fresh) -> None:
        def push(at: int) -> int:
            moments, feed, client = fresh()
            client.watch({})
            entries = feed.add(made(), made())
            moments.begin({at: lambda: feed.publish(made(), made())})
            Feed(moments.agent).push(entries)
            points = len(moments.passed)
            moments.begin()
            client.check(all_of(feed) if at in range(points) else all_of(feed)[:2])
            return points

        for at in range(push(-1)):
            push(at)

    @pytest.mark.parametrize("after", [False, True])
    def test_a_push_that_fails_is_made_again(self, fresh, clock: Clock, after: bool) -> None:
        """Without a gap wherever it fails. A repeat is possible only where the note of what was
        sent is lost, and then with the number that it had."""

        def push(at: int) -> list[str]:
            moments, feed, client = fresh()
            client.watch({})
            entries = feed.add(made(), made(), made())
            moments.begin({at: lambda: Fault(after=after)})
            with suppress(StoreError, ExceptionGroup):
                Feed(moments.agent).push(entries)
            passed = list(moments.passed)
            moments.begin()
            feed.push(entries)
            if passed[at : at + 1] == ["write"]:  # of the cursor, which it may still hold
                clock.now += LEASE_SECONDS + 1
                feed.push(entries)
                assert list(dict.fromkeys(client.look())) == all_of(feed)
            else:
                client.check(all_of(feed))
            return passed

        for at, name in enumerate(push(-1)):
            if name != "post":
                push(at)

    def test_a_post_that_fails_is_made_again(self, fresh) -> None:
        def push(at: int) -> list[str]:
            moments, feed, client = fresh()
            client.watch({})
            entries = feed.add(*(made() for _ in range(4)))

            def fail() -> None:
                raise ConnectionError("API Gateway does not answer")

            moments.begin({at: fail})
            if at >= 0:
                with pytest.raises(ExceptionGroup):
                    Feed(moments.agent).push(entries)
            else:
                Feed(moments.agent).push(entries)
            passed = list(moments.passed)
            moments.begin()
            feed.push(entries)
            client.check(all_of(feed))
            return passed

        posts = [at for at, name in enumerate(push(-1)) if name == "post"]
        assert len(posts) == 4
        for at in posts:
            push(at)

    def test_closed_during_the_replay_or_a_push(self, clock: Clock) -> None:
        """Nothing comes later, and nothing of the subscription is left."""

        def close_at(at: int, *, replay: bool) -> int:
            mirror = MirroringEngine(MemoryEngine(clock=clock))
            moments = Moments(mirror, clock)
            feed, client = Feed(moments.other), LiveClient(moments.agent)
            closer = replace(moments.other)
            before = set(mirror.sessions)
            feed.add(made(), made())
            now = int(clock() * 1000)
            bystander = Client(closer, "bystander")

            def close() -> None:
                bystander.id, bystander.agent = "live", closer
                bystander.send("CLOSE", "live", time_ms=now + 900)

            deeds = {at: close}
            moments.begin(deeds if replay else {})
            client.watch({}, time_ms=now + 500)
            if not replay:
                moments.begin(deeds)
                Feed(moments.agent).push(feed.add(made()))
            points = len(moments.passed)
            moments.begin()
            if at >= 0:
                sent = list(client.look())
                feed.publish(made())
                assert client.look() == sent
                left = {key for key in mirror.sessions - before if "bystander" not in key[0]}
                assert left == {("s#live#live", "s")}  # the CLOSE, remembered for a while
            return points

        for replay in (True, False):
            for at in range(close_at(-1, replay=replay)):
                close_at(at, replay=replay)


@pytest.mark.parametrize("seed", range(150))
def test_in_any_order_of_operations(clock: Clock, seed: int) -> None:
    """A request, two shards that number and push, and a stream that brings it all once more."""
    engine = MemoryEngine(clock=clock)
    agent = make_agent(engine, clock)
    feed, client = Feed(agent), LiveClient(agent)
    feed.add(made(), made())
    shards = [[made() for _ in range(3)], [made() for _ in range(3)]]
    feed.store(*shards[0], *shards[1])
    filter = {"authors": ["a" * 64]} if seed % 2 else {}
    times = int(clock() * 1000)

    def watch(steps: Engine) -> None:
        client.agent = replace(agent, engine=steps)
        client.send("CHANGES", "live", {**filter, "live": True}, time_ms=times)

    def run_shard(number: int) -> Callable[[Engine], None]:
        def run(steps: Engine) -> None:
            mine = Feed(replace(agent, engine=steps))
            for event in shards[number]:
                mine.push(mine.number(event))

        return run

    # Frames that the client is answered with stay in its connection: look at them in the end.
    connections = connections_of(agent)
    taken, connections.take = connections.take, lambda _: []  # type: ignore[method-assign]
    interleave(engine, [watch, run_shard(0), run_shard(1)], seed, shuffle=True)
    connections.take = taken  # type: ignore[method-assign]
    client.agent = agent

    client.check(all_of(feed))
    assert len(client.entries) == 8


class TestTroubledClients:
    @pytest.fixture
    def feed(self, agent: Agent) -> Feed:
        return Feed(agent)

    @pytest.fixture
    def clients(self, agent: Agent) -> list[LiveClient]:
        clients = [LiveClient(agent, name) for name in ("first", "ill", "last")]
        for client in clients:
            client.watch({})
        return clients

    @pytest.mark.parametrize("fate", [each for each in Delivery if each is not Delivery.BUSY])
    def test_the_others_do_not_notice(self, agent, feed, clients, fate: Delivery) -> None:
        connections_of(agent).fate["ill"] = fate

        feed.publish(made(), made())

        for client in (clients[0], clients[2]):
            client.check(all_of(feed))
        assert (agent.sessions.get("ill") is None) == (fate is Delivery.GONE)
        assert connections_of(agent).closed == (["ill"] if fate is Delivery.SLOW else [])

    def test_one_that_is_turned_away_goes_on_where_it_was(self, agent, feed, clients) -> None:
        """The stream brings the entries again, and the others have had theirs."""
        connections_of(agent).fate["ill"] = Delivery.BUSY
        with pytest.raises(ExceptionGroup):
            feed.publish(made(), made())
        assert connections_of(agent).closed == []
        connections_of(agent).fate.clear()

        feed.push(feed.entries())

        for client in clients:
            client.check(all_of(feed))

    def test_the_others_get_every_entry_if_one_post_raises(self, agent, feed, clients) -> None:
        connections = connections_of(agent)
        posts = connections.post

        def post(connection_id: str, frames: Any) -> Delivery:
            if connection_id == "ill":
                raise ConnectionError
            return posts(connection_id, frames)

        connections.post = post  # type: ignore[method-assign]
        with pytest.raises(ExceptionGroup):
            feed.publish(made(), made())
        for client in (clients[0], clients[2]):
            client.check(all_of(feed))

        connections.post = posts  # type: ignore[method-assign]
        feed.push(feed.entries())
        for client in clients:
            client.check(all_of(feed))

    def test_a_disconnected_client_gets_no_entries(self, agent, feed, clients) -> None:
        for client in clients:
            agent.sessions.disconnect(client.id)

        feed.publish(made())

        assert connections_of(agent).posted == []
