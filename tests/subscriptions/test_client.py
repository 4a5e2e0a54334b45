"""The examples of the document, with our client: notes, articles, a stream that is paid by the
event, and several relays."""

import asyncio
import shlex
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest

from farthing.agent.subscription_client import (
    Handlers,
    NoAnswer,
    Relay,
    RelayRejected,
    SpendLimit,
    Subscription,
    SubscriptionClient,
    unique,
)
from farthing.btp_nips.answers import ReqAnswer
from farthing.btp_nips.lifecycle import State
from farthing.btp_nips.models import Model
from farthing.btp_nips.positions import live
from farthing.btp_nips.relay_messages import RelayMessages
from farthing.context import Agent
from farthing.ilp.packet import Code, Fulfill, Prepare, Reject
from farthing.nostr.events import Event
from farthing.nostr.filters import parse_filter
from farthing.store.sqlite import SqliteEngine
from infra.local.commands import subscribe
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


class Lost:
    """Brings no packet anywhere."""

    async def send(self, prepare: Prepare) -> Fulfill | Reject:
        raise NoAnswer("nobody is there")


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


def test_stored_articles_of_a_paid_subscription_arrive(agent: Agent, clock: Clock) -> None:
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


def test_automatic_top_ups_come_before_the_end_when_many_events_wait(
    agent: Agent, clock: Clock
) -> None:
    """The credit pays for fewer events than one answer brings."""
    events = store_notes(agent, 60)
    troubles: list[str] = []

    async def example() -> list[Event]:
        subscription = await client_of(agent, clock).subscribe(
            [parse_filter({"kinds": [1]})], 1300, model=Model.STREAMING, auto_top_up=300,
            max_spend=2000, handlers=Handlers(trouble=troubles.append),
        )  # fmt: skip
        return await first(subscription, 60)

    assert ids(asyncio.run(example())) == ids(events)
    assert troubles == []


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

    with pytest.raises(RelayRejected) as refused:
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
        rest = await two.stored()
        assert not two.is_over  # EOSE has come, at the position of the last event
        return seen, rest

    missed = [note(), note()]
    seen, rest = asyncio.run(example())
    assert ids(seen) == ids(before)
    assert ids(rest) == ids(missed)


def test_credit_that_ran_out_behind_eose_is_resumed_without_a_gap(
    agent: Agent, clock: Clock
) -> None:
    """The events are numbered after the REQ, as in the cloud: EOSE stands before them."""
    events = [note() for _ in range(3)]
    filters = [parse_filter({"kinds": [1]})]

    async def example() -> tuple[list[Event], list[Event]]:
        client = client_of(agent, clock)
        one = await client.subscribe(filters, 1020, model=Model.STREAMING)
        store(agent, *events)
        seen = [event async for event in one]
        two = await client.subscribe(
            filters, 1020, model=Model.STREAMING, resume=one.resumption_token
        )
        return seen, await two.stored()

    seen, rest = asyncio.run(example())
    assert ids(seen) == ids(events[:2])
    assert ids(rest) == ids(events[2:])


@pytest.mark.parametrize("taken", range(1, 5))
def test_a_client_that_stops_in_the_middle_of_an_answer_resumes_without_a_gap(
    agent: Agent, clock: Clock, taken: int
) -> None:
    filters = [parse_filter({"kinds": [1]})]
    events = [note() for _ in range(4)]

    async def example() -> tuple[list[str], list[str]]:
        client = client_of(agent, clock)
        one = await client.subscribe(filters, 1160)
        store(agent, *events)
        seen = []
        async for event in unique(one):
            seen.append(event.id)
            if len(seen) == taken:
                break
        two = await client.subscribe(filters, 1160, resume=one.resumption_token)
        return seen, ids(await two.stored())

    seen, rest = asyncio.run(example())
    assert seen == ids(events[:taken])
    assert rest[-(4 - taken) or 4 :] == ids(events[taken:])
    assert rest == [] or taken < 4


def test_other_filters_bring_stored_events_again(agent: Agent, clock: Clock) -> None:
    events = store_notes(agent, 2)

    async def example() -> list[Event]:
        one = await client_of(agent, clock).subscribe([parse_filter({"kinds": [1]})], 1160)
        await one.stored()
        await one.pay(1260, [parse_filter({"kinds": [1, 7]})])
        return await one.stored()

    assert ids(asyncio.run(example())) == ids(events)


def test_the_command_to_go_on_is_for_one_relay_and_has_what_was_given() -> None:
    parser = ArgumentParser()
    subscribe.add_arguments(parser)
    given = ["--filter", '{"kinds":[1]}', "--model", "streaming", "--amount", "0",
             "--max-spend", "9000", "--auto-top-up", "500", "--owner", "--json"]  # fmt: skip
    urls = ["ws://one.example", "ws://two.example"]
    arguments = parser.parse_args([*given, *(word for url in urls for word in ("--relay", url))])

    client = SubscriptionClient(Relay("g.two", "0" * 64), SUBSCRIBER, Lost())
    one = client.of_id("s1")
    one.resumption_token = "AQ"

    said = subscribe.how_to_resume(arguments, one, urls[1])

    program, _, *words = shlex.split(said.removeprefix("to go on: "))
    again = parser.parse_args(words)
    assert program == "farthing"
    assert vars(again) == {**vars(arguments), "relay": [urls[1]], "resume": "AQ", "id": "s1"}


def test_an_open_subscription_goes_on_for_nothing_and_without_a_gap(
    agent: Agent, clock: Clock
) -> None:
    before, missed = store_notes(agent, 3), [note(), note()]
    filters = [parse_filter({"kinds": [1]})]

    async def example() -> tuple[list[Event], list[Event]]:
        one = await client_of(agent, clock).subscribe(filters, 1500, id="s1", model=Model.STREAMING)
        seen = await first(one, 3)
        store(agent, *missed)
        two = await client_of(agent, clock).go_on("s1", filters, one.resumption_token)
        assert two is not None
        return seen, await first(two, 2)

    seen, rest = asyncio.run(example())

    assert ids(seen) == ids(before)
    assert ids(rest) == ids(missed)
    assert posted(agent) == 1500
    (found,) = agent.paid_subscriptions.all(agent.now)
    assert (found.account.credit, found.account.delivered) == (450, 5)


@pytest.mark.parametrize(
    "why", ["closed", "over", "other filters", "free", "another id", "not ours"]
)
def test_a_subscription_that_cannot_be_resumed_is_left_as_it_is(
    agent: Agent, clock: Clock, why: str
) -> None:
    async def example() -> None:
        client, filters = client_of(agent, clock), [parse_filter({"kinds": [1]})]
        model, amount = (Model.FREE, 0) if why == "free" else (Model.STREAMING, 1500)
        one = await client.subscribe(filters, amount, id="s1", model=model)
        token, id = one.resumption_token, "s2" if why == "another id" else "s1"
        if why == "closed":
            await one.close()
        if why == "over":
            clock.now += 4000
        if why == "other filters":
            filters = [parse_filter({"kinds": [7]})]
        before = await one.status()
        assert await client.go_on(id, filters, "AQ" if why == "not ours" else token) is None
        assert await one.status() == before

    asyncio.run(example())


class Restless(Direct):
    """A relay that is away for a while."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self.away: list[Reject | None] = []

    async def send(self, prepare: Prepare) -> Fulfill | Reject:
        if not self.away:
            return await super().send(prepare)
        reject = self.away.pop(0)
        if reject is None:
            raise NoAnswer("nobody is there")
        return reject


def rejected(code: Code) -> Reject:
    return Reject(code, "g.hop", "not now", b"")


def test_a_relay_that_is_away_for_a_while_is_asked_again(agent: Agent, clock: Clock) -> None:
    events, troubles = store_notes(agent, 2), list[str]()

    async def example() -> list[Event]:
        client = client_of(agent, clock)
        client.carrier = away = Restless(agent)
        one = await client.subscribe(
            [parse_filter({"kinds": [1]})], 1160, handlers=Handlers(trouble=troubles.append)
        )
        away.away = [rejected(Code.T01_PEER_UNREACHABLE), rejected(Code.R00_TRANSFER_TIMED_OUT),
                     None, None, None, None]  # fmt: skip
        return await first(one, 2)

    assert ids(asyncio.run(example())) == ids(events)
    assert [text.rpartition("; ")[2] for text in troubles] == [
        "trying again in 1 s", "trying again in 2 s", "trying again in 4 s",
    ]  # fmt: skip


def test_a_relay_that_stays_away_is_given_up_at_the_end_of_the_time(
    agent: Agent, clock: Clock
) -> None:
    async def example() -> None:
        client = client_of(agent, clock)
        one = await client.subscribe([parse_filter({"kinds": [1]})], 1160)
        client.carrier = Lost()
        await first(one, 1)

    began = clock.now
    with pytest.raises(NoAnswer):
        asyncio.run(example())
    assert 3600 <= clock.now - began <= 3600 + 70


def test_a_final_reject_is_not_tried_again(agent: Agent, clock: Clock) -> None:
    async def example() -> None:
        client = client_of(agent, clock)
        client.carrier = away = Restless(agent)
        one = await client.subscribe([parse_filter({"kinds": [1]})], 1160)
        away.away = [rejected(Code.F02_UNREACHABLE)]
        await first(one, 1)

    with pytest.raises(RelayRejected) as refused:
        asyncio.run(example())
    assert refused.value.code == "F02"


def test_a_payment_whose_answer_is_lost_counts_as_spent(agent: Agent, clock: Clock) -> None:
    async def example() -> None:
        client = client_of(agent, clock)
        client.carrier = away = Restless(agent)
        one = await client.subscribe(
            [parse_filter({"kinds": [1]})], 1160, model=Model.ONE_TIME, max_spend=1500
        )
        away.away = [None] * 4
        with pytest.raises(NoAnswer):
            await one.top_up(200)
        with pytest.raises(SpendLimit):
            await one.top_up(200)

    asyncio.run(example())


def test_one_of_several_relays_fails_and_the_others_go_on(
    relays: Callable[[int], list[Agent]], clock: Clock
) -> None:
    agents, troubles = relays(2), list[str]()
    [event] = store_notes(agents[1], 1)

    async def example() -> tuple[list[str], str]:
        subscriptions = [
            await client_of(agent, clock).subscribe(
                [parse_filter({"kinds": [1]})],
                1160,
                ttl=60,
                handlers=Handlers(trouble=troubles.append),
            )
            for agent in agents
        ]
        broken = Restless(agents[0])
        broken.away = [rejected(Code.F02_UNREACHABLE)]
        subscriptions[0].client.carrier = broken
        found: list[str] = []
        try:
            async for each in unique(*subscriptions):
                found.append(each.id)
        except RelayRejected as refused:
            return found, refused.code
        return found, ""

    assert asyncio.run(example()) == ([event.id], "F02")
    assert len(troubles) == 1 and "F02" in troubles[0]


class Kept:
    """An inbox with messages that were pushed before."""

    def __init__(self, *messages: bytes) -> None:
        self.messages = list(messages)

    async def expect(self, relay: str, subscription_id: str, until: int) -> None:
        pass

    async def take(self, relay: str, subscription_id: str) -> list[bytes]:
        taken, self.messages = self.messages, []
        return taken


def test_by_push_the_credit_follows_the_fees_of_events(agent: Agent, clock: Clock) -> None:
    events = [note(), note(), note()]
    messages = RelayMessages("s1", agent.settings.pubkey, "USD", int(clock.now))
    before = messages.eose(live(3), 0, "token", 490).envelope
    sent = [
        messages.event(live(number), orjson.dumps(event.as_dict()).decode(), 0, 10).envelope
        for number, event in enumerate(events, 4)
    ]

    async def example() -> int:
        client = client_of(agent, clock)
        client.inbox, client.reply_to = Kept(before, *sent), "g.bob"
        one = client.of_id("s1", push=True)
        # As a status query has answered it: the first event was drawn for already.
        one.answer = ReqAnswer(
            "s1", State.ACTIVE, Model.STREAMING, 0, int(clock.now + 60) * 1000, 1000, 10, 480,
            live(4), "token",
        )  # fmt: skip
        assert ids(await first(one, 3)) == ids(events)
        return one.answer.credit

    assert asyncio.run(example()) == 460
