"""The HTTP doors' bodies, and what a Nostr client that asks for Aether events sends and gets."""

from typing import Any

import pytest

from farthing.aether import gateway
from farthing.aether.errors import Code, InvalidEvent, InvalidMessage
from farthing.aether.events import parse_event
from tests.aether.known import EVENTS, KEYS

EVENT: dict[str, Any] = EVENTS["immutable"]["event"]


def test_an_event_comes_bare_or_with_a_capability() -> None:
    bare = gateway.parse_post_event(EVENT)
    wrapped = gateway.parse_post_event({"event": EVENT, "capability": []})

    assert bare is not None and (bare.event, bare.capability) == (EVENT, None)
    assert wrapped is not None and (wrapped.event, wrapped.capability) == (EVENT, [])


@pytest.mark.parametrize(
    "value", [None, 5, [], {}, {"id": "x"}, {"event": {"id": "x"}}, {"event": [EVENT]}]
)
def test_what_has_no_event_id_is_left_to_nostr(value: object) -> None:
    assert gateway.parse_post_event(value) is None


def test_a_subscription_has_filters_and_perhaps_an_id() -> None:
    found = gateway.parse_post_subscription({"filters": [{"kinds": [1]}]}, max_filters=1)
    named = gateway.parse_post_subscription(
        {"filters": [{}], "subscription_id": "mine"}, max_filters=1
    )

    assert found.subscription_id is None
    assert found.filters[0].kinds == {1}
    assert named.subscription_id == "mine"


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"filters": []},
        {"filters": [{}, {}]},
        {"filters": {}},
        {"filters": [{"colour": 1}]},
        {"filters": [{}], "subscription_id": ""},
        {"filters": [{}], "subscription_id": 5},
        {"filters": [{}], "subscription_id": "x" * 65},
    ],
    ids=repr,
)
def test_malformed_subscriptions_are_refused(value: object) -> None:
    with pytest.raises(InvalidMessage):
        gateway.parse_post_subscription(value, max_filters=1)


def test_a_subscription_id_holds_128_random_bits() -> None:
    assert gateway.subscription_id(bytes(range(16))) == "sub-000102030405060708090a0b0c0d0e0f"
    with pytest.raises(ValueError, match="128"):
        gateway.subscription_id(bytes(15))


def test_answers_have_the_fields_of_the_specification() -> None:
    assert gateway.accepted("e", "duplicate") == {
        "accepted": True,
        "event_id": "e",
        "message": "duplicate",
    }
    assert gateway.refused(InvalidEvent("why")) == {
        "accepted": False,
        "error": "invalid_event",
        "message": "why",
    }
    assert gateway.STATUS.keys() == set(Code)


def test_the_information_document_says_how_to_speak_aether() -> None:
    found = gateway.information(
        pubkey=KEYS["owner_aether_pubkey"],
        noise_pubkey=KEYS["relay_noise_public"],
        ws="wss://relay.example/v1/ws",
    )

    assert list(found) == ["version", "pubkey", "noise_pubkey", "formats", "ws"]
    assert found["formats"] == ["flatbuffers", "json"]


def test_a_nostr_client_asks_with_a_mark_in_every_filter() -> None:
    found = gateway.parse_nostr_filters(
        [{"aether": True, "#t": ["x"], "since": EVENT["created_at"]}]
    )

    assert found is not None
    assert found[0].tags == {"t": {"x"}}
    assert found[0].since == EVENT["created_at"]
    assert gateway.parse_nostr_filters([{"kinds": [1]}, 5]) is None
    assert gateway.parse_nostr_filters([]) is None


@pytest.mark.parametrize(
    "filters",
    [
        [{"aether": True}, {}],
        [{"aether": True}, 5],
        [{"aether": False}],
        [{"aether": 1}],
        [{"aether": True, "colour": 1}],
    ],
    ids=repr,
)
def test_half_marked_filters_are_refused(filters: list[object]) -> None:
    with pytest.raises(InvalidMessage):
        gateway.parse_nostr_filters(filters)


def test_a_nostr_client_gets_the_event_as_it_was_signed() -> None:
    assert gateway.for_nostr(parse_event(EVENT)) == {
        **EVENT,
        "id": EVENT["event_id"],
        "tags": (),
    }
