"""Noise with a running relay: sealed both ways and in order, and nothing altered, replayed or plain
is taken."""

import json
from collections.abc import Callable, Iterator

import pytest

from farthing.aether import messages
from farthing.aether.messages import Envelope
from tests.e2e.aether_client import ENVELOPES, AetherAuthor, AetherClient
from tests.e2e.client import Background
from tests.e2e.conftest import OPEN
from tests.e2e.relay_process import RelayProcess

Connect = Callable[..., AetherClient]


@pytest.fixture
def aether(background: Background, relay: RelayProcess) -> Iterator[Connect]:
    clients: list[AetherClient] = []

    def connect(envelope: Envelope = ENVELOPES["JSON"], url: str = "") -> AetherClient:
        clients.append(AetherClient(background, url or relay.url, envelope))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


def publish(event: object) -> messages.Outgoing:
    return messages.publish(event)  # type: ignore[arg-type]


@pytest.mark.parametrize("envelope", ENVELOPES.values(), ids=ENVELOPES)
def test_everything_works_inside_noise(aether: Connect, envelope: Envelope) -> None:
    agent, client, other = AetherAuthor(), aether(envelope), aether()
    assert client.shake_hands() == {"type": "ack"}
    other.subscribe("seen", {"authors": [agent.pubkey]})
    for number in range(3):
        assert client.publish(agent.event(str(number)))["message"] == "accepted"
        other.wait_for(type="event", sub_id="seen")  # from now on, it is not new to anybody
    other.send({"type": "unsubscribe", "sub_id": "seen"})
    stored = client.subscribe("s", {"authors": [agent.pubkey]})
    assert [each["content"] for each in stored] == ["2", "1", "0"]
    for number in range(20):  # live and answers at once: numbers go out in order
        other.publish(agent.event(f"live {number}", kind=20001 if number % 2 else 1))
        client.send({"type": "unsubscribe", "sub_id": "other"})
    missing = {f"live {number}" for number in range(20)}
    while missing:
        missing.discard(client.wait_for(type="event")["event"]["content"])
    for _ in range(20):
        client.wait_for(type="ack", sub_id="other")
    assert client.received == list(range(len(client.received)))


def test_replayed_reordered_altered_and_plain_frames_are_refused(aether: Connect) -> None:
    agent, client = AetherAuthor(), aether()
    client.shake_hands(claim=False)
    first, second, third = (
        client.seal(publish(agent.event(str(number)).as_dict())) for number in range(3)
    )
    client.send_noise(second)
    assert client.receive()["message"] == "accepted"
    for refused in (second, first):  # again; and out of order, which on one machine is a replay
        client.send_noise(refused)
        assert client.receive()["error"] == "invalid_message"
    client.send_noise(third[:-1] + bytes((third[-1] ^ 1,)))
    assert client.receive()["error"] == "invalid_message"
    client.send_noise(third[:20])
    assert client.receive()["error"] == "invalid_message"
    client.send_frame(json.dumps({"type": "publish", "event": agent.event().as_dict()}))
    assert client.receive()["error"] == "invalid_message"
    client.send_noise(third)  # what was altered on the way has used up nothing
    assert client.receive()["message"] == "accepted"
    stored = client.subscribe("s", {"authors": [agent.pubkey]})
    assert [each["content"] for each in stored] == ["2", "1"]
    client.send_frame(json.dumps({"type": "subscribe", "sub_id": "s", "filters": [{"kinds": []}]}))
    assert client.receive()["error"] == "invalid_message"
    client.publish(agent.event("3"))  # the plain frame has replaced no subscription
    assert client.wait_for(type="event")["event"]["content"] == "3"


def test_a_key_that_was_claimed_has_to_be_proved(aether: Connect) -> None:
    client = aether()
    welcome = client.hello(noise={"required": True, "pubkey": "a" * 64})
    assert welcome["noise"]["required"] is True
    client.send_frame(json.dumps({"type": "unsubscribe", "sub_id": "s"}))
    assert client.receive()["error"] == "invalid_message"  # it has been required


def test_a_relay_requires_noise_or_refuses_it(
    start_relay: Callable[..., RelayProcess], aether: Connect
) -> None:
    agent = AetherAuthor()
    strict = start_relay("strict", **OPEN, aether_noise="required")
    client = aether(url=strict.url)
    assert client.publish(agent.event())["error"] == "invalid_message"
    client = aether(url=strict.url)
    client.shake_hands()
    assert client.publish(agent.event())["message"] == "accepted"
    plain = start_relay("plain", **OPEN, aether_noise="off")
    client = aether(url=plain.url)
    assert client.hello(noise={"required": True})["error"] == "invalid_message"
    client = aether(url=plain.url)
    assert client.hello()["noise"] == {"required": False}
    client.send_noise(bytes(32))
    assert client.receive()["error"] == "invalid_message"


def test_an_event_too_large_for_noise_is_told_of(aether: Connect) -> None:
    agent, plain, sealed = AetherAuthor(), aether(), aether()
    assert plain.publish(agent.event("x" * 70_000))["message"] == "accepted"
    assert plain.publish(agent.event("small"))["message"] == "accepted"
    sealed.shake_hands()
    assert len(sealed_events(sealed, agent)) == 1


def sealed_events(client: AetherClient, agent: AetherAuthor) -> list[str]:
    client.send({"type": "subscribe", "sub_id": "s", "filters": [{"authors": [agent.pubkey]}]})
    found = []
    while (answer := client.receive()) != {"type": "ack", "sub_id": "s"}:
        if answer["type"] == "error":
            assert answer["error"] == "too_large"
        else:
            found.append(answer["event"]["event_id"])
    return found
