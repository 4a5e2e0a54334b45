"""AUTH (NIP-42)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from farthing.context import Agent
from farthing.nostr.events import public_key_of
from farthing.relay.caller import Caller
from tests.relay.world import ALICE, BOB, HOST, START, Client

AgentWith = Callable[..., Agent]
OTHER_RELAY = "expected the URL of this relay in the relay tag"


def pubkeys(client: Client) -> frozenset[str]:
    connection = client.agent.sessions.get(client.id)
    assert connection is not None
    return connection.pubkeys


def test_a_signed_challenge_is_proof(client: Client) -> None:
    event = client.auth_event(ALICE)

    assert client.send("AUTH", event.as_dict()) == [["OK", event.id, True, ""]]
    assert pubkeys(client) == {public_key_of(ALICE)}


def test_a_connection_may_authenticate_several_keys(client: Client) -> None:
    client.authenticate(ALICE)
    client.authenticate(BOB)

    assert pubkeys(client) == {public_key_of(ALICE), public_key_of(BOB)}


def test_two_that_come_side_by_side_do_not_undo_each_other(client: Client) -> None:
    agent = client.agent
    one, other = (Caller(agent, client.id, START * 1000).arrive() for _ in range(2))

    agent.sessions.authenticate(one, public_key_of(ALICE))
    agent.sessions.authenticate(other, public_key_of(BOB))

    assert pubkeys(client) == {public_key_of(ALICE), public_key_of(BOB)}


def test_proof_is_for_one_connection(client: Client) -> None:
    event = client.auth_event(ALICE)
    other = Client(client.agent, "other")

    ((_, _, accepted, reason),) = other.send("AUTH", event.as_dict())

    assert (accepted, reason) == (False, "invalid: expected the challenge that was sent")
    assert pubkeys(other) == frozenset()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kind": 1}, "expected an event of kind 22242"),
        ({"created_at": START - 601}, "expected the present time as created_at"),
        ({"created_at": START + 601}, "expected the present time as created_at"),
        ({"tags": {"challenge": "guess"}}, "expected the challenge that was sent"),
        ({"tags": {"challenge": None}}, "expected the challenge that was sent"),
        ({"tags": {"challenge": ""}}, "expected the challenge that was sent"),
        (
            {"tags": {"relay": "wss://elsewhere.example"}},
            OTHER_RELAY,
        ),
        (
            {"tags": {"relay": f"wss://{HOST}.evil.example"}},
            OTHER_RELAY,
        ),
        (
            {"tags": {"relay": f"wss://evil.example/{HOST}"}},
            OTHER_RELAY,
        ),
        (
            {"tags": {"relay": f"wss://{HOST}@evil.example"}},
            OTHER_RELAY,
        ),
        ({"tags": {"relay": HOST}}, OTHER_RELAY),
        ({"tags": {"relay": "wss://[broken"}}, OTHER_RELAY),
        ({"tags": {"relay": None}}, OTHER_RELAY),
    ],
)
def test_an_auth_that_breaks_a_rule_is_refused_with_the_reason(
    agent_with: AgentWith, changes: dict[str, Any], reason: str
) -> None:
    client = Client(agent_with())

    _, _, accepted, told = client.authenticate(ALICE, **changes)

    assert (accepted, told) == (False, f"invalid: {reason}")
    assert pubkeys(client) == frozenset()


@pytest.mark.parametrize(
    "relay", [f"wss://{HOST}", f"ws://{HOST}:443/", f"wss://{HOST.upper()}/path?x=1"]
)
def test_the_relay_is_known_by_its_host(agent_with: AgentWith, relay: str) -> None:
    client = Client(agent_with())

    assert client.authenticate(ALICE, tags={"relay": relay})[2] is True


def test_the_configured_name_counts_and_no_other(agent_with: AgentWith) -> None:
    client = Client(agent_with(relay_url="wss://public.example"))

    assert client.authenticate(ALICE, tags={"relay": "wss://public.example/"})[2] is True
    assert client.authenticate(BOB, tags={"relay": f"wss://{HOST}"})[2] is False


@pytest.mark.parametrize("spoil", [{"content": "altered"}, {"sig": "0" * 128}])
def test_a_forged_event_is_refused(agent_with: AgentWith, spoil: dict[str, str]) -> None:
    client = Client(agent_with())
    forged = replace(client.auth_event(ALICE), **spoil)

    ((_, id, accepted, reason),) = client.send("AUTH", forged.as_dict())

    assert (id, accepted) == (forged.id, False)
    assert reason.startswith("invalid: ")
    assert pubkeys(client) == frozenset()


def test_without_a_challenge_there_is_no_authentication(agent_with: AgentWith) -> None:
    client = Client(agent_with())
    client.agent.sessions.disconnect(client.id)  # and with it the challenge

    _, _, accepted, reason = client.authenticate(ALICE, tags={"challenge": ""})

    assert (accepted, reason) == (False, "invalid: expected the challenge that was sent")


def test_a_connection_proves_only_so_many_keys(agent_with: AgentWith) -> None:
    client = Client(agent_with(max_auth_keys=1))
    client.authenticate(ALICE)

    event = client.auth_event(BOB)
    ((_, _, accepted, reason),) = client.send("AUTH", event.as_dict())

    assert (accepted, reason) == (False, "restricted: expected at most 1 keys on one connection")
    assert pubkeys(client) == {public_key_of(ALICE)}
    client.authenticate(ALICE)  # again is no other key
