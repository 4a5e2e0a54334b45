"""Aether in stateless functions: several containers serve one connection, and each starts from the
tables alone."""

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from farthing.aether import messages, noise
from farthing.aether.capabilities import issue, parse_token
from farthing.aether.events import Event
from farthing.aether.frames import MessageType
from farthing.aether.keys import owner_seed, public_key
from farthing.context import Agent
from farthing.relay.aether.publish import publish
from farthing.relay.aether.sealed_frames import SealedFrame
from farthing.relay.aether.streams import (
    SubscriptionNotFound,
    SubscriptionTaken,
    TooManySubscriptions,
    close_subscription,
    filters_of,
    find_subscription,
    open_subscription,
    read_log,
)
from farthing.relay.fan_out import fan_out
from farthing.relay.sequence import number_events
from farthing.store.capabilities import Capabilities
from farthing.store.changes import Arrival
from farthing.store.memory import MemoryEngine
from farthing.store.sessions import connection_key
from farthing.store.spaces import AETHER
from farthing.store.table import Add, Engine, Table
from tests.relay.aether_world import (
    ALICE,
    BOB,
    JSON,
    SECOND,
    as_body,
    client_of,
    connected,
    signed,
)
from tests.relay.world import OWNER, START, Client, Clock, connections_of, make_agent


@pytest.fixture
def agent() -> Agent:
    clock = Clock()
    return make_agent(MemoryEngine(clock=clock), clock)


def another_container(agent: Agent) -> Agent:
    """The same tables and connections, and nothing that was remembered."""
    return replace(agent, _parts={})


def at_once(calls: list[Callable[[], None]]) -> None:
    start = threading.Barrier(len(calls))

    def run(call: Callable[[], None]) -> None:
        start.wait()
        call()

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_each_step_of_the_handshake_may_run_elsewhere(agent: Agent) -> None:
    client = connected(agent)
    original = client._hand_over
    containers = [another_container(agent) for _ in range(8)]
    hands = iter(client_of(each, "aether")._hand_over for each in containers)
    client._hand_over = lambda frame: next(hands)(frame)
    assert client.shake_hands() == [{"type": "ack"}]
    assert client.publish(signed())["message"] == "accepted"
    client._hand_over = original
    assert client.counters == [0, 1]


def test_a_step_of_the_handshake_is_taken_once(agent: Agent) -> None:
    client = connected(agent)
    client.shake_hands()
    third, session = client.third, client.session
    (answer,) = client.send_noise(third)
    assert answer["error"] == "invalid_message"
    client.session = session
    assert client.publish(signed())["message"] == "accepted"


def test_two_containers_never_use_a_number_twice(agent: Agent) -> None:
    client = connected(agent)
    client.shake_hands()
    written: list[str] = []

    def send(container: Agent) -> None:
        for number in range(50):
            frame = SealedFrame(
                container, "aether", f'{{"type":"ack","n":{number}}}'.encode(), JSON
            )
            written.append(str(frame.write()))

    at_once([partial(send, another_container(agent)) for _ in range(4)])
    counters = [noise.counter_of(messages.read(frame).octets) for frame in written]
    assert sorted(counters) == list(range(1, 201))  # 0 was the ACK of the handshake


def test_counters_come_in_any_order_and_each_once(agent: Agent) -> None:
    client = connected(agent)
    client.shake_hands()
    payloads = [
        client.seal({"type": "publish", "event": as_body(signed(content=str(n)))}) for n in range(4)
    ]
    for number in (2, 0, 3, 1):
        (answer,) = client.send_noise(payloads[number])
        assert answer["message"] == "accepted"
    for payload in payloads:
        (answer,) = client.send_noise(payload)
        assert answer["error"] == "invalid_message"
    answers: list[str] = []
    late = client.seal({"type": "unsubscribe", "sub_id": "s"})

    def race(container: Agent) -> None:
        other = client_of(container, "aether")
        other.session = client.session
        answers.extend(str(body.get("error", "ack")) for body in other.send_noise(late))

    at_once([partial(race, another_container(agent)) for _ in range(4)])
    assert sorted(answers) == ["ack"] + ["invalid_message"] * 3


@pytest.mark.parametrize("inner", [b"", b"nonsense", b'{"a":1}', b'["REQ","s",{}]'])
def test_what_is_no_message_inside_noise_has_a_sealed_answer(agent: Agent, inner: bytes) -> None:
    client = connected(agent)
    client.shake_hands()
    assert client.session is not None
    (answer,) = client.send_noise(noise.seal(client.session.send_key, next(client.sent), inner))
    assert answer["error"] == "invalid_message"
    assert client.counters == [0, 1]


def test_state_is_sealed_and_bound_to_its_connection(agent: Agent) -> None:
    client, other = connected(agent), connected(agent, "other")
    client.shake_hands()
    other.shake_hands()
    assert client.session is not None
    kept = agent.sessions.get("aether")
    assert kept is not None
    assert client.session.send_key not in kept.noise.sealed
    assert client.session.receive_key not in kept.noise.sealed
    # Whoever swaps the states of two connections has nothing of it.
    other_kept = agent.sessions.get("other")
    assert other_kept is not None
    agent.engine.write(
        Add(Table.SESSIONS, *connection_key("aether"), {}, {"state": other_kept.noise.sealed})
    )
    frame = SealedFrame(agent, "aether", b'{"type":"ack"}', JSON)
    assert frame.write() is None


def test_events_reach_sealed_and_plain_sockets_and_no_nostr_client(agent: Agent) -> None:
    plain, sealed, nostr = connected(agent, "plain"), connected(agent, "sealed"), Client(agent)
    sealed.shake_hands()
    for client in (plain, sealed):
        assert client.subscribe("s", {"kinds": [1]}) == [{"type": "ack", "sub_id": "s"}]
    nostr.send("REQ", "s", {"kinds": [1]})
    event = signed()
    fan_out(agent, [event], AETHER)
    for client, name in ((plain, "plain"), (sealed, "sealed")):
        (body,) = client.read(connections_of(agent).take_frames(name))
        assert body == {"type": "event", "sub_id": "s", "event": as_body(event)}
    assert connections_of(agent).take("client") == []


def test_a_plain_publish_is_refused_as_plain_whatever_it_holds(agent: Agent) -> None:
    paid = replace(agent, settings=replace(agent.settings, price_per_byte=10), _parts={})
    client, owner = connected(paid), owner_seed(OWNER)
    client.shake_hands()
    stored = signed(owner)
    assert client.publish(stored)["message"] == "accepted"
    unpaid, expired = signed(), signed(owner, tags=[("expiration", "1")])
    for event in (stored, unpaid, expired, signed(owner, content="new"), {"event_id": stored.id}):
        body = as_body(event) if isinstance(event, Event) else event
        frame = str(messages.write(messages.publish(body), JSON))
        (answer,) = map(messages.read, client._hand_over(frame))
        assert answer.body["message"] == "expected a message inside noise"
        assert answer.body["event_id"] == body["event_id"]


@pytest.mark.parametrize("alone", [False, True])
def test_a_subscription_from_before_noise_goes_on_inside_it(agent: Agent, alone: bool) -> None:
    """A client inside Noise takes no plain frame, and nobody else shall read its events."""
    agent = replace(agent, alone=alone, in_order=alone)
    client, other = connected(agent), connected(agent, "other")

    def subscribe() -> None:
        for each in (client, other):
            assert each.subscribe("early", {"kinds": [1]}) == [{"type": "ack", "sub_id": "early"}]

    assert client.shake_hands(before=subscribe) == [{"type": "ack"}]
    event = signed()
    fan_out(agent, [event], AETHER)
    (frame,) = connections_of(agent).take_frames("aether")
    assert messages.read(frame).type is MessageType.NOISE
    (body,) = client.read([frame])
    assert body == {"type": "event", "sub_id": "early", "event": as_body(event)}
    (plain,) = connections_of(agent).take_frames("other")
    assert messages.read(plain).type is MessageType.EVENT


def test_64_writers_and_five_uses(agent: Agent) -> None:
    token = issue(
        owner_seed(OWNER), subject=public_key(ALICE), capability="relay:events:write",
        caveats={"max_uses": 5},
    )  # fmt: skip
    paid = replace(agent, settings=replace(agent.settings, price_per_byte=10), _parts={})
    answers: list[str] = []

    def write(number: int) -> None:
        client = connected(another_container(paid), f"writer {number}")
        answer = client.publish(signed(content=str(number)), [token])
        answers.append(str(answer.get("message")) if answer["type"] == "ack" else answer["error"])

    at_once([partial(write, number) for number in range(64)])
    assert sorted(answers) == ["accepted"] * 5 + ["capability_refused"] * 59
    assert Capabilities(agent.engine).uses(parse_token(token).id) == 5


def test_a_revoked_token_ends_all_that_were_made_from_it(agent: Agent) -> None:
    paid = replace(agent, settings=replace(agent.settings, price_per_byte=10), _parts={})
    root = issue(owner_seed(OWNER), subject=public_key(BOB), capability="relay:events", caveats={})
    leaf = issue(
        BOB, subject=public_key(ALICE), capability="relay:events:write:1",
        caveats={"ip": "192.0.2.0/24"},
    )  # fmt: skip
    here, there = (
        connected(paid, "here", ip="192.0.2.7"),
        connected(paid, "there", ip="198.51.100.1"),
    )
    assert here.publish(signed(content="1"), [root, leaf])["message"] == "accepted"
    assert there.publish(signed(content="2"), [root, leaf])["error"] == "capability_refused"
    assert here.publish(signed(content="2"), [leaf])["error"] == "capability_refused"
    Capabilities(agent.engine).revoke(parse_token(root).id, agent.now)
    assert here.publish(signed(content="2"), [root, leaf])["error"] == "capability_refused"
    assert here.publish(signed(content="1"), [root, leaf])["message"] == "duplicate"


def test_streams_read_the_log_in_parts(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("farthing.relay.aether.streams._MOST_ENTRIES", 4)
    monkeypatch.setattr("farthing.relay.aether.streams._MOST_CHARACTERS", 900)
    opened = open_subscription(agent, {"filters": [{"kinds": [1]}, {"#t": ["x"]}]}, ip=None)
    filters = filters_of(find_subscription(agent, opened))
    wanted = []
    for number in range(20):
        kind = number % 3
        event = signed(kind=kind, content=str(number), created_at=START * SECOND + number)
        publish(agent, messages.Publish(as_body(event)), ip=None)
        number_events(agent, [Arrival(event.id, event.pubkey, event.kind)], AETHER)
        if kind == 1:
            wanted.append(number + 1)
    found, position = [], 0
    while True:
        batch = read_log(agent, filters, position)
        found += [number for number, _ in batch.events]
        assert batch.end > position
        position = batch.end
        if batch.is_last:
            break
    assert found == wanted
    assert position == 20
    assert agent.changes.last_number() == 0  # the log of Nostr knows of nothing


def test_a_subscription_lives_as_long_as_it_is_read() -> None:
    clock = Clock()
    agent = make_agent(MemoryEngine(clock=clock), clock)
    life = agent.settings.aether_subscription_seconds
    opened = open_subscription(agent, {"filters": [{}]}, ip=None)
    for part in (0.45, 0.9, 0.9):
        clock.now += life * part
        assert find_subscription(agent, opened).id == opened
    clock.now += life
    with pytest.raises(SubscriptionNotFound):
        find_subscription(agent, opened)


def test_a_forgotten_subscription_is_gone_although_it_is_still_stored(
    engine: Engine, clock: Clock
) -> None:
    agent = make_agent(engine, clock)
    for _ in range(2):
        assert open_subscription(agent, {"filters": [{}], "subscription_id": "s"}, ip=None) == "s"
        with pytest.raises(SubscriptionTaken):
            open_subscription(agent, {"filters": [{}], "subscription_id": "s"}, ip=None)
        clock.now += agent.settings.aether_subscription_seconds
    with pytest.raises(SubscriptionNotFound):
        close_subscription(agent, "s")


def test_an_address_has_so_many_subscriptions_by_http() -> None:
    clock = Clock()
    agent = make_agent(MemoryEngine(clock=clock), clock, aether_max_subscriptions=2)
    first, second = "2001:db8::1", "2001:db8::2"  # one client has both

    def opened(ip: str | None) -> str:
        return open_subscription(agent, {"filters": [{}]}, ip=ip)

    kept, closed = opened(first), opened(second)
    with pytest.raises(TooManySubscriptions):
        opened(first)
    assert opened("192.0.2.1")
    assert opened(None)
    close_subscription(agent, closed)
    assert opened(first)
    with pytest.raises(TooManySubscriptions):
        opened(first)
    # A subscription that is read counts as long as it lives.
    clock.now += agent.settings.aether_subscription_seconds * 0.9
    find_subscription(agent, kept)
    clock.now += agent.settings.aether_subscription_seconds * 0.9
    assert opened(first)
    with pytest.raises(TooManySubscriptions):
        opened(first)


def test_an_ephemeral_event_that_is_sent_again_uses_nothing(agent: Agent) -> None:
    seed = owner_seed(agent.settings.secret)
    token = issue(
        seed, subject=public_key(ALICE), capability="relay:events:write", caveats={"max_uses": 1}
    )
    client, event = connected(agent), signed(kind=20001)
    assert client.publish(event, [token])["message"] == "accepted"
    assert client.publish(event, [token])["message"] == "duplicate"
    assert client.publish(signed(kind=20001, content="2"), [token])["error"] == "capability_refused"


@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_fast_sender_is_told_what_was_refused(is_sealed: bool) -> None:
    clock = Clock()
    engine = MemoryEngine(clock=clock)
    agent = make_agent(engine, clock, requests_per_second=1, request_burst=5)
    client, event = connected(agent), signed()
    if is_sealed:
        client.shake_hands()
    answers = [client.publish(event)]
    while answers[-1]["type"] == "ack":
        answers.append(client.publish(event))
    answer = answers[-1]
    assert answer["error"] == "rate_limited"
    if is_sealed:  # the message is not opened, but its answer is sealed as every other
        assert client.counters == list(range(1 + len(answers)))
        return
    assert answer["event_id"] == event.id
    (answer,) = client.subscribe("s", {})
    assert (answer["error"], answer["sub_id"]) == ("rate_limited", "s")
