"""Rejects of envelopes: code, name and text as the specification's table has them, also where it is
the connector that rejects."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from farthing.btp_nips.messages import Ceilings, Close, EventMessage, MessageType, Model, Payment
from farthing.connector.subscriptions.req import ReqMessage
from farthing.context import Agent
from farthing.ilp.packet import Fulfill, Reject
from tests.ilp.paying import posted, send
from tests.relay.world import signed
from tests.subscriptions.world import NOTES, SUBSCRIBER, Subscriber, refusal


@pytest.fixture
def subscriber(agent: Agent) -> Subscriber:
    return Subscriber(agent)


def envelope(kind: int, body: object, version: int = 1) -> bytes:
    octets = body if isinstance(body, bytes) else orjson.dumps(body)
    return bytes([version, kind]) + len(octets).to_bytes(2, "big") + octets


def told(reply: Fulfill | Reject) -> dict[str, Any]:
    assert isinstance(reply, Reject), reply
    fields: dict[str, Any] = orjson.loads(reply.data)
    assert fields["message"].startswith(f"[{fields['error']}] ")
    return fields


@pytest.mark.parametrize("version", [0, 2, 31])
def test_another_version_is_a_wrong_header(subscriber: Subscriber, version: int) -> None:
    body = {"payment": {}, "nostr": {"subscriptionId": "s1"}, "metadata": {}}
    packet = subscriber.packet(subscriber.req(), 1160, data=envelope(2, body, version))

    assert refusal(send(subscriber.agent, packet)) == ("F06", "header_invalid")


@pytest.mark.parametrize("kind", [4, 5, 6, 7, 9])
@pytest.mark.parametrize("nostr", [None, {}, {"subscriptionId": "s1"}])
def test_a_relays_message_without_its_parts_is_awaited_by_nobody(
    subscriber: Subscriber, kind: int, nostr: dict[str, Any] | None
) -> None:
    body: dict[str, Any] = {"payment": {"amount": "0"}, "metadata": {"timestamp": 1}}
    body |= {} if nostr is None else {"nostr": {"type": MessageType(kind).name, **nostr}}
    packet = subscriber.packet(subscriber.req(), data=envelope(kind, body))

    assert refusal(send(subscriber.agent, packet)) == ("F06", "message_unexpected")


def test_a_body_that_is_no_object_is_malformed_whoever_sends_it(subscriber: Subscriber) -> None:
    packet = subscriber.packet(subscriber.req(), data=envelope(4, b"{"))

    assert refusal(send(subscriber.agent, packet)) == ("F00", "body_invalid")


def test_an_event_below_its_price(agent: Agent, subscriber: Subscriber) -> None:
    event = signed(SUBSCRIBER, content="published", created_at=agent.now)
    message = EventMessage(event, Payment(), subscriber.metadata())
    price = 10 * len(subscriber.packet(message).data)

    fields = told(subscriber.send(message, price - 1))

    assert fields.pop("message") == f"[payment_insufficient] storing this event costs {price}"
    assert fields == {
        "error": "payment_insufficient",
        "price": str(price),
        "received": str(price - 1),
        "asset_code": "USD",
        "asset_scale": 9,
    }


def test_an_event_that_is_refused_or_stored_already(agent: Agent, subscriber: Subscriber) -> None:
    kept, protected = (
        signed(SUBSCRIBER, content=content, tags=tags, created_at=agent.now)
        for content, tags in (("kept", []), ("protected", [["-"]]))
    )
    assert isinstance(subscriber.send(_publish(subscriber, kept), 10**6), Fulfill)

    for event in (kept, protected):
        again = _publish(subscriber, event, priority=7)
        assert refusal(subscriber.send(again, 10**6)) == ("F99", "refused")


def _publish(subscriber: Subscriber, event: Any, **metadata: Any) -> EventMessage:
    return EventMessage(event, Payment(), subscriber.metadata(**metadata))


def test_an_event_under_a_condition_that_nobody_knows(agent: Agent, subscriber: Subscriber) -> None:
    event = signed(SUBSCRIBER, created_at=agent.now)
    packet = subscriber.packet(_publish(subscriber, event), 10**6, condition=b"\7" * 32)

    assert refusal(send(agent, packet)) == ("F05", "condition_unknown")


def test_what_is_wrong_with_a_message_is_told_before_its_condition(subscriber: Subscriber) -> None:
    """The first check that fails makes the reject, also for a message of an unknown sender."""
    late = subscriber.req("s1", [NOTES], timestamp=subscriber.agent.now - 301)
    close = Close("s1", Payment(), subscriber.metadata())
    unknown = {"condition": b"\x01" * 32}

    stale = send(subscriber.agent, subscriber.packet(late, 1160, **unknown))
    paid = send(subscriber.agent, subscriber.packet(close, 1, **unknown))

    assert refusal(stale) == ("F00", "timestamp_stale")
    assert refusal(paid) == ("F03", "amount_invalid")
    free = send(subscriber.agent, subscriber.packet(close, 0, **unknown))
    assert refusal(free) == ("F05", "condition_unknown")


@pytest.mark.parametrize("alone", [True, False])
def test_too_many_packets_in_a_minute(agent: Agent, alone: bool) -> None:
    slow = replace(agent, settings=replace(agent.settings, packets_per_minute=1), alone=alone)
    subscriber = Subscriber(slow)
    assert isinstance(subscriber.send(subscriber.req(filters=[NOTES]), 1160), Fulfill)

    reply = subscriber.send(subscriber.req(), 100)

    assert refusal(reply) == ("T05", "limit_exceeded")
    assert told(reply)["message"] == "[limit_exceeded] expected at most 1 packets in a minute"
    assert posted(agent) == 1160


def test_what_is_no_envelope_is_rejected_as_ever(agent: Agent, subscriber: Subscriber) -> None:
    for changes in ({"data": b"id: a"}, {"destination": "g.elsewhere"}):
        reply = send(agent, subscriber.packet(subscriber.req(), **changes))
        assert isinstance(reply, Reject)
        assert reply.data == b""


def test_an_unforeseen_error_is_a_relay_error(
    agent: Agent, subscriber: Subscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("the store is on fire")

    monkeypatch.setattr(ReqMessage, "check", fail)

    reply = subscriber.send(subscriber.req(filters=[NOTES]), 1160)

    assert refusal(reply) == ("T00", "relay_error")
    assert told(reply)["message"] == "[relay_error] internal error"


def test_a_top_up_above_the_clients_ceiling(agent: Agent, subscriber: Subscriber) -> None:
    subscriber.subscribe(1100, model=Model.STREAMING)

    for ceilings in (Ceilings(999, None), Ceilings(None, 9)):
        reply = subscriber.send(subscriber.req(ceilings=ceilings), 500)
        assert refusal(reply) == ("F04", "payment_insufficient")
    assert isinstance(subscriber.send(subscriber.req(ceilings=Ceilings(1000, 10)), 500), Fulfill)
    assert posted(agent) == 1600
