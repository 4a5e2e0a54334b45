"""The examples of the document, with our client: notes, articles, a stream that is paid by the
event, and several relays."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from farthing.agent.subscription_client import (
    Handlers,
    NoAnswer,
    Refused,
    Relay,
    SpendLimit,
    Subscription,
    SubscriptionClient,
    unique,
)
from farthing.btp_nips.messages import Model
from farthing.context import Agent
from farthing.ilp.packet import Fulfill, Prepare, Reject
from farthing.nostr.events import Event
from farthing.nostr.filters import parse_filter
from farthing.store.sqlite import SqliteEngine
from tests.ilp.paying import paid_agent, posted, send
from tests.relay.world import BOB, Clock, signed
from tests.subscriptions.world import SUBSCRIBER, ids, note, store, store_notes


class Direct:
    """Brings packets to a relay, and loses some answers."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.lost = 0

    async def send(self, prepare: Prepare) -> Fulfill | Reject:
        reply = send(self.agent, prepare)
        if self.lost:
            self.lost -= 1
            raise NoAnswer("lost")
        return reply


def client_of(agent: Agent, clock: Clock) -> SubscriptionClient:
    async def sleep(seconds: float) -> None:
        clock.now += seconds
        await asyncio.sleep(0)

    relay = Relay(agent.settings.own_ilp_address, agent.settings.pubkey)
    return SubscriptionClient(relay, SUBSCRIBER, Direct(agent), clock=clock, sleep=sleep)


async def first(subscription: Subscription, number: int) -> list[Event]:
    found: list[Event] = []
    async for event in subscription:
        found.append(event)
        if len(found) == number:
            break
    return found


def test_example_1_text_notes_of_authors(agent: Agent, clock: Clock) -> None:
    stored = store_notes(agent, 3)
    filters = [parse_filter({"kinds": [1], "authors": [stored[0].pubkey], "since": 0})]
    eose = []

    async def example() -> tuple[list[Event], int]:
        client = client_of(agent, clock)
        subscription = await client.subscribe(
            filters, 5000, ttl=3600, handlers=Handlers(eose=eose.append)
        )
        events = await subscription.stored()
        store(agent, new := note())
        events += await first(subscription, 1)
        assert events[-1] == new
        return events, await subscription.close()

    events, credit = asyncio.run(example())

    assert ids(events[:3]) == ids(stored)
    assert [each.event_count for each in eose] == [3]
    assert credit == 5000 - 1000 - 60 - 2 * 100


def test_example_2_articles(agent: Agent, clock: Clock) -> None:
    articles = [
        signed(BOB, kind=30023, tags=[["d", name]]) for name in ("tech-news", "bitcoin", "other")
    ]
    store(agent, *articles)
    filters = [parse_filter({"kinds": [30023], "#d": ["tech-news", "bitcoin"], "limit": 50})]

    async def example() -> list[Event]:
        subscription = await client_of(agent, clock).subscribe(filters, 10_000, ttl=86400)
        return await subscription.stored()

    assert {event.id for event in asyncio.run(example())} == {each.id for each in articles[:2]}


def test_example_3_a_stream_asks_for_payment(agent: Agent, clock: Clock) -> None:
    events = store_notes(agent, 3)
    filters = [parse_filter({"kinds": [1], "authors": [events[0].pubkey]})]
    requests, reasons = [], []

    async def example() -> list[Event]:
        handlers = Handlers(payment_request=requests.append, closed=reasons.append)
        subscription = await client_of(agent, clock).subscribe(
            filters, 1010, model=Model.STREAMING, handlers=handlers
        )
        return [event async for event in subscription]

    assert ids(asyncio.run(example())) == ids(events[:1])
    assert set(requests) == {10}
    assert reasons == ["Subscription credit is used up"]


def test_example_3_with_automatic_top_ups_within_a_limit(agent: Agent, clock: Clock) -> None:
    events = store_notes(agent, 60)

    async def example() -> tuple[list[Event], int]:
        subscription = await client_of(agent, clock).subscribe(
            [parse_filter({"kinds": [1]})], 1500, model=Model.STREAMING,
            auto_top_up=300, max_spend=1800,
        )  # fmt: skip
        return await first(subscription, 60), subscription.spent

    found, spent = asyncio.run(example())
    assert ids(found) == ids(events)
    assert spent == 1800
    assert posted(agent) == 1800


@pytest.fixture
def relays(tmp_path: Path, clock: Clock) -> Iterator[Callable[[int], list[Agent]]]:
    engines: list[SqliteEngine] = []

    def make(number: int) -> list[Agent]:
        for index in range(number):
            engines.append(SqliteEngine(tmp_path / str(index), clock=clock))
        return [
            paid_agent(engine, clock, secret_key=f"{index + 7:064x}")
            for index, engine in enumerate(engines)
        ]

    yield make
    for engine in engines:
        engine.close()


def test_example_4_several_relays_and_each_event_once(
    relays: Callable[[int], list[Agent]], clock: Clock
) -> None:
    agents = relays(3)
    shared, own = note(), [note() for _ in agents]
    for agent, event in zip(agents, own, strict=True):
        store(agent, shared, event)

    async def example() -> list[str]:
        subscriptions = [
            await client_of(agent, clock).subscribe(
                [parse_filter({"kinds": [1], "limit": 100})], 12_000, ttl=3600
            )
            for agent in agents
        ]
        found: list[str] = []
        async for event in unique(*subscriptions):
            found.append(event.id)
            if len(found) == 4:
                break
        return found

    assert sorted(asyncio.run(example())) == sorted(ids([shared, *own]))


def test_a_lost_answer_costs_nothing_and_loses_nothing(agent: Agent, clock: Clock) -> None:
    events = store_notes(agent, 5)

    async def example() -> list[Event]:
        client = client_of(agent, clock)
        assert isinstance(client.carrier, Direct)
        client.carrier.lost = 2
        subscription = await client.subscribe(
            [parse_filter({"kinds": [1]})], 1500, model=Model.STREAMING
        )
        client.carrier.lost = 1
        return await first(subscription, 5)

    assert ids(asyncio.run(example())) == ids(events)
    assert posted(agent) == 1500
    (found,) = agent.paid_subscriptions.all(agent.now)
    assert found.account.credit == 450


def test_more_than_may_be_spent_is_not_sent(agent: Agent, clock: Clock) -> None:
    async def example() -> None:
        await client_of(agent, clock).subscribe([parse_filter({})], 5000, max_spend=4999)

    with pytest.raises(SpendLimit):
        asyncio.run(example())
    assert posted(agent) == 0


def test_a_refusal_says_why(agent: Agent, clock: Clock) -> None:
    async def example() -> None:
        await client_of(agent, clock).subscribe([parse_filter({"kinds": [1]})], 10)

    with pytest.raises(Refused) as refused:
        asyncio.run(example())
    assert (refused.value.code, refused.value.error) == ("F04", "payment_insufficient")


def test_a_subscription_is_resumed_without_a_gap(agent: Agent, clock: Clock) -> None:
    before = store_notes(agent, 2)

    async def example() -> tuple[list[Event], list[Event]]:
        client = client_of(agent, clock)
        one = await client.subscribe([parse_filter({"kinds": [1]})], 1160)
        seen = await first(one, 2)
        await one.close()
        store(agent, *missed)
        two = await client.subscribe(
            [parse_filter({"kinds": [1]})], 1160, resume=one.resumption_token
        )
        return seen, await two.stored()

    missed = [note(), note()]
    seen, rest = asyncio.run(example())
    assert ids(seen) == ids(before)
    assert ids(rest) == ids(missed)
