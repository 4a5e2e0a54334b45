"""Aether events in a packet's data: the vector, and every event comes back as it went in."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farthing.aether import toon
from farthing.aether.errors import InvalidEvent
from farthing.aether.events import parse_event, sign_event, verify
from farthing.aether.numbers import MAX_U64
from farthing.ilp.condition import condition_of, quote_fulfillment
from farthing.ilp.toon import dumps_event
from farthing.nostr import events as nostr
from tests.aether.known import BY_ID, EVENTS, VECTORS, seed

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
TAGS = st.lists(
    st.builds(
        lambda key, values: [key, *values],
        st.from_regex(r"[A-Za-z0-9_]{1,8}", fullmatch=True),
        st.lists(TEXT, max_size=3),
    ),
    max_size=3,
)


def test_an_event_has_the_toon_of_the_vectors() -> None:
    vector = VECTORS["toon"]
    event = parse_event(BY_ID[vector["event_id"]])

    octets = toon.dumps(event)

    assert octets.decode() == vector["text"]
    assert len(octets) == vector["size"]
    assert toon.loads(octets) == event


@pytest.mark.parametrize("name", [each for each in EVENTS if EVENTS[each]["expect"] == "stored"])
def test_events_of_the_vectors_are_read_back(name: str) -> None:
    event = parse_event(EVENTS[name]["event"])

    assert toon.is_aether(toon.dumps(event))
    assert toon.loads(toon.dumps(event)) == event


@settings(max_examples=60)
@given(TAGS, TEXT | st.binary(max_size=20), st.integers(0, MAX_U64), st.integers(0, 65535))
def test_every_event_comes_back(
    tags: list[list[str]], content: str | bytes, created_at: int, kind: int
) -> None:
    event = sign_event(seed("agent"), kind=kind, content=content, created_at=created_at, tags=tags)

    verify(toon.loads(toon.dumps(event)))
    assert toon.loads(toon.dumps(event)) == event


def test_nostr_events_are_not_taken_for_aether() -> None:
    event = nostr.sign_event(b"\x01" * 32, kind=1, content="event_id: x", created_at=0)

    assert not toon.is_aether(dumps_event(event))


@pytest.mark.parametrize(
    "octets",
    [
        b"",
        b"event_id:",
        b"event_id: x",
        b"event_id: \xff",
        b"event_id: 5\ntags[2]{a,b}:\n  1,2",
        b"event_id:\n" * 100,
        b"event_id: " + b"9" * 5000,
    ],
)
def test_what_is_no_event_is_refused(octets: bytes) -> None:
    with pytest.raises(InvalidEvent):
        toon.loads(octets)


def test_more_tags_than_the_limit_are_refused() -> None:
    event = sign_event(seed("agent"), kind=1, content="", created_at=0, tags=[["t", "x"]])

    with pytest.raises(InvalidEvent):
        toon.loads(toon.dumps(event), max_tags=1)


def test_the_quote_for_an_aether_event_is_made_like_any_other() -> None:
    vector = VECTORS["quote"]
    secret, event_id = bytes.fromhex(vector["relay_secret"]), bytes.fromhex(vector["event_id"])

    fulfillment = quote_fulfillment(secret, event_id)

    assert fulfillment.hex() == vector["fulfillment"]
    assert condition_of(fulfillment).hex() == vector["condition"]
