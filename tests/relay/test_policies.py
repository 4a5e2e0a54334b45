"""Each policy at its edge, through the EVENT verb."""

from collections.abc import Callable
from typing import Any

import pytest

from farthing.context import Agent
from farthing.nostr.events import public_key_of
from tests.relay.world import ALICE, BOB, START, Client, Clock, signed

AgentWith = Callable[..., Agent]
TWO_DAYS = 2 * 24 * 3600


@pytest.mark.parametrize(
    ("settings", "event", "reason"),
    [
        ({"max_event_tags": 2}, {"tags": [["t"]] * 2}, ""),
        ({"max_event_tags": 2}, {"tags": [["t"]] * 3}, "invalid: expected at most 2 tags, got 3"),
        ({"max_content_length": 5}, {"content": "ééééé"}, ""),
        (
            {"max_content_length": 5},
            {"content": "éééééé"},
            "invalid: expected at most 5 characters of content, got 6",
        ),
        ({}, {"kind": 22242}, "invalid: kind 22242 goes with AUTH and is never published (NIP-42)"),
        ({"created_at_future": 9}, {"created_at": START + 9}, ""),
        (
            {"created_at_future": 9},
            {"created_at": START + 10},
            "invalid: created_at is too far in the future",
        ),
        ({}, {"created_at": 0}, ""),
        ({"created_at_past": 9}, {"created_at": START - 9}, ""),
        (
            {"created_at_past": 9},
            {"created_at": START - 10},
            "invalid: created_at is too far in the past",
        ),
        ({"created_at_past": 9}, {"kind": 1059, "created_at": START - TWO_DAYS}, ""),
        (
            {"created_at_past": 9},
            {"kind": 1059, "created_at": START - TWO_DAYS - 1},
            "invalid: created_at is too far in the past",
        ),
        ({}, {"tags": [["expiration", str(START + 1)]]}, ""),
        ({}, {"tags": [["expiration", str(START)]]}, "invalid: event has expired (NIP-40)"),
        ({}, {"tags": [["expiration", "0"]]}, "invalid: event has expired (NIP-40)"),
        (
            {"blocked_pubkeys": frozenset([public_key_of(ALICE)])},
            {},
            "blocked: author is blocked here",
        ),
        ({"blocked_pubkeys": frozenset([public_key_of(BOB)])}, {}, ""),
        (
            {"blocked_pubkeys": frozenset([public_key_of(ALICE)]), "price_per_byte": 10},
            {},
            "blocked: author is blocked here",  # and not invited to pay first
        ),
    ],
)
def test_each_policy_refuses_only_what_breaks_it(
    agent_with: AgentWith, settings: dict[str, Any], event: dict[str, Any], reason: str
) -> None:
    client = Client(agent_with(**settings))
    published = signed(ALICE, **event)

    answer = client.publish(published)

    assert answer == ["OK", published.id, reason == "", reason]
    assert (client.agent.events.get(published.id) is not None) == (reason == "")


def test_an_event_expires_while_it_is_stored(agent_with: AgentWith, clock: Clock) -> None:
    client = Client(agent_with())
    event = signed(tags=[["expiration", str(START + 60)]])
    client.publish(event)

    clock.now = START + 60

    assert client.ids({}) == []
    assert client.publish(event)[2] is False
    assert client.send("COUNT", "x", {}) == [["COUNT", "x", {"count": 0}]]
