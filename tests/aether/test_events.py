"""Events: every vector, the exact limits of the shape, the order of checks, and ids by a model."""

import base64
import copy
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farthing.aether import events, policies
from farthing.aether.errors import AetherError, Code, InvalidEvent, ValidationFailed
from farthing.aether.events import Event, check, known_event, parse_event, sign_event, verify
from farthing.aether.kinds import keeping
from farthing.aether.numbers import MAX_U64, SECOND
from farthing.nostr.kinds import Keeping
from tests.aether.known import BY_ID, EVENTS, NOW_NS, VECTORS, seed
from tests.aether.naive import naive_id

FUTURE = 60
GOOD: dict[str, Any] = EVENTS["immutable"]["event"]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def judge(value: object, now_ns: int = NOW_NS) -> str:
    try:
        check(parse_event(value), policies.standard(now_ns, FUTURE))
    except AetherError as error:
        return error.code
    return "stored"


def changed(**fields: object) -> dict[str, Any]:
    return {**copy.deepcopy(GOOD), **fields}


def signed(*, kind: int = 1, created_at: int = NOW_NS, tags: Any = (), content: Any = "x") -> Event:
    return sign_event(seed("agent"), kind=kind, created_at=created_at, tags=tags, content=content)


# The vectors.


@pytest.mark.parametrize("vector", VECTORS["tags"], ids=lambda vector: str(vector["tags"])[:40])
def test_tags_have_the_bytes_of_the_vectors(vector: dict[str, Any]) -> None:
    assert events.tag_bytes(vector["tags"]).hex() == vector["bytes"]


@pytest.mark.parametrize("vector", VECTORS["events"], ids=lambda vector: vector["name"])
def test_events_of_the_vectors_are_judged_and_encoded_as_written(vector: dict[str, Any]) -> None:
    expected = "stored" if vector["expect"] == "superseded" else vector["expect"]

    assert judge(vector["event"]) == expected
    if expected == Code.INVALID_EVENT:
        return
    event = parse_event(vector["event"])
    fields = (event.pubkey, event.created_at, event.kind, event.tags, event.content)
    assert events.canonical_bytes(*fields).hex() == vector["canonical"]
    assert orjson.loads(event.to_json()) == vector["event"]
    assert list(orjson.loads(event.to_json())) == list(vector["event"])
    assert known_event(event.to_json()) == event
    again = sign_event(
        seed("agent"),
        kind=event.kind,
        content=event.content,
        created_at=event.created_at,
        tags=event.tags,
    )
    assert again == event


@pytest.mark.parametrize("vector", VECTORS["forged"], ids=lambda vector: vector["name"])
def test_forged_events_are_refused(vector: dict[str, Any]) -> None:
    assert judge(vector["event"]) == vector["expect"]


def test_of_a_tie_the_lowest_id_stays() -> None:
    stays, goes = (parse_event(VECTORS["tie"][name]) for name in ("stays", "goes"))

    assert stays.address == goes.address
    assert stays.sort_key < goes.sort_key
    assert judge(VECTORS["tie"]["stays"]) == judge(VECTORS["tie"]["goes"]) == "stored"


def test_the_latest_replaceable_stays() -> None:
    first, newer, older = (parse_event(BY_ID[each]) for each in VECTORS["replaceable"])

    assert first.address == newer.address == older.address is not None
    assert newer.sort_key < first.sort_key
    assert newer.sort_key < older.sort_key


def test_addresses_take_the_first_value_of_the_first_d() -> None:
    alpha, missing, empty, first = (parse_event(BY_ID[each]) for each in VECTORS["addressed"])

    assert alpha.address == first.address == f"30001:{alpha.pubkey}:alpha"
    assert missing.address == empty.address == f"30001:{alpha.pubkey}:"
    assert signed(kind=30001, tags=[["d"], ["d", "x"]]).address == missing.address


def test_the_sort_key_puts_the_newest_event_first() -> None:
    vector = VECTORS["sort_key"]

    assert events.sort_key(vector["created_at"], vector["event_id"]) == vector["key"]
    assert parse_event(BY_ID[vector["event_id"]]).sort_key == vector["key"]
    assert events.sort_key(MAX_U64, "") == "0" * 16
    assert events.sort_key(0, "") == "f" * 16


# Keeping.


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ((0, 3, 4, 5, 999, 1000, 1059, 9999), Keeping.REGULAR),
        ((10000, 19999), Keeping.REPLACEABLE),
        ((30000, 39999), Keeping.ADDRESSABLE),
        ((20000, 29999), Keeping.EPHEMERAL),
    ],
)
def test_the_kind_decides_how_an_event_is_kept(kinds: tuple[int, ...], expected: Keeping) -> None:
    for kind in kinds:
        assert keeping(kind) is expected
        is_addressed = expected in (Keeping.REPLACEABLE, Keeping.ADDRESSABLE)
        assert (signed(kind=kind).address is not None) is is_addressed


def test_an_event_is_storable() -> None:
    event = signed(tags=[["t", "x", "y"], ["t", "x"], ["e"], ["long_key", ""]])

    assert list(event.indexed_tags()) == [("t", "x"), ("t", "y"), ("long_key", "")]
    assert event.expiration is None


@pytest.mark.parametrize(
    ("text", "nanoseconds", "second"),
    [
        ("0", 0, 0),
        ("4102444800", 4102444800 * SECOND, 4102444800),
        ("99999999999", 99999999999 * SECOND, 99999999999),
        ("100000000000000000", 10**17, 10**8),
        ("4102444800000000001", 4102444800000000001, 4102444801),
        ("99999999999999999999", 10**20 - 1, 10**11),
    ],
)
def test_expirations_are_seconds_or_nanoseconds(text: str, nanoseconds: int, second: int) -> None:
    event = parse_event(changed(tags=[["expiration", text, "ignored"]]))

    assert (event.expires_ns, event.expiration) == (nanoseconds, second)


@pytest.mark.parametrize("digits", [12, 13, 17, 21])
def test_expirations_of_other_lengths_are_invalid(digits: int) -> None:
    assert judge(changed(tags=[["expiration", "1" * digits]])) == Code.INVALID_EVENT


@pytest.mark.parametrize("tag", [["expiration"], ["expiration", ""], ["expiration", "-1"]])
def test_expirations_that_are_no_number_are_invalid(tag: list[str]) -> None:
    assert judge(changed(tags=[tag])) == Code.INVALID_EVENT
    assert judge(changed(tags=[["expiration", "4102444800"], tag])) == Code.INVALID_EVENT


@pytest.mark.parametrize("text", ["٣", "1_0", " 1", "1 ", "1\n", "+1", "1.0"])
def test_expirations_are_plain_digits(text: str) -> None:
    assert judge(changed(tags=[["expiration", text]])) == Code.INVALID_EVENT


# Shape.


@pytest.mark.parametrize(
    "fields",
    [
        {"event_id": None},
        {"event_id": "c0" * 31},
        {"event_id": "c0" * 32 + "\n"},
        {"pubkey": "0x" + "0" * 62},
        {"pubkey": GOOD["pubkey"].upper()},
        {"sig": GOOD["sig"] + "00"},
        {"sig": 5},
        {"kind": True},
        {"kind": 1.0},
        {"kind": -1},
        {"kind": None},
        {"created_at": -1},
        {"created_at": True},
        {"created_at": 2**64},
        {"created_at": str(2**64)},
        {"created_at": ""},
        {"created_at": "-1"},
        {"created_at": "1e9"},
        {"created_at": "007"},
        {"created_at": "٣"},
        {"created_at": "1 "},
        {"created_at": 1.7e18},
        {"created_at": None},
        {"tags": None},
        {"tags": {}},
        {"tags": [[]]},
        {"tags": ["t"]},
        {"tags": [[1]]},
        {"tags": [[""]]},
        {"tags": [["t", 1]]},
        {"tags": [["t", None]]},
        {"tags": [["t", ["x"]]]},
        {"tags": [["ž", "x"]]},
        {"tags": [["t\n", "x"]]},
        {"tags": [["expirations", "1"]]},
        {"tags": [["t", "\ud800"]]},
        {"tags": [["t", "ž" * 513]]},
        {"content": None},
        {"content": 5},
        {"content": "\ud800"},
        {"content_b64": None},
    ],
    ids=repr,
)
def test_a_wrong_shape_is_an_invalid_event(fields: dict[str, object]) -> None:
    assert judge(changed(**fields)) == Code.INVALID_EVENT


@pytest.mark.parametrize("value", [None, [], "event", 5, {}])
def test_what_is_no_event_is_an_invalid_event(value: object) -> None:
    assert judge(value) == Code.INVALID_EVENT


@pytest.mark.parametrize("name", list(GOOD))
def test_every_field_is_needed(name: str) -> None:
    value = changed()
    del value[name]

    assert judge(value) == Code.INVALID_EVENT


@pytest.mark.parametrize("name", sorted(set(GOOD) - {"event_id"}))
def test_a_refusal_names_the_event(name: str) -> None:
    with pytest.raises(InvalidEvent) as caught:
        parse_event(changed(**{name: []} if name != "tags" else {name: 1}))

    assert caught.value.event_id == GOOD["event_id"]


def test_times_may_be_decimal_text_and_leave_as_integers() -> None:
    event = parse_event(changed(created_at=str(GOOD["created_at"])))

    assert event == parse_event(GOOD)
    assert orjson.loads(event.to_json())["created_at"] == GOOD["created_at"]


def test_fields_beyond_the_contract_are_dropped() -> None:
    assert parse_event(changed(id="x", extra=[1])) == parse_event(GOOD)


def test_base64_of_text_means_the_text() -> None:
    value = changed(content_b64=base64.b64encode(b"hello aether").decode())
    del value["content"]

    assert judge(value) == "stored"
    assert parse_event(value) == parse_event(GOOD)


@pytest.mark.parametrize("text", ["AA", "AA=", "AB==", "A===", "_-==", "AA==\n", "ž", 5, "=AA="])
def test_base64_has_one_form(text: object) -> None:
    value = changed(content_b64=text)
    del value["content"]

    assert judge(value) == Code.INVALID_EVENT


def test_tags_and_values_together_have_a_limit() -> None:
    value = changed(tags=[["t", "x", "y"], ["e"]])

    assert len(parse_event(value, max_tags=4).tags) == 2
    with pytest.raises(InvalidEvent):
        parse_event(value, max_tags=3)


def test_more_tags_than_the_id_can_count_are_refused() -> None:
    with pytest.raises(InvalidEvent):
        parse_event(changed(tags=[["t"]] * 65536), max_tags=10**6)


# Policies, and the order of checks.


@pytest.mark.parametrize(
    ("kind", "offset", "expected"),
    [
        (1, FUTURE * SECOND, "stored"),
        (1, FUTURE * SECOND + 1, Code.VALIDATION_FAILED),
        (1, -(10**18), "stored"),
        (20000, FUTURE * SECOND, "stored"),
        (20000, -60 * SECOND, "stored"),
        (20000, -60 * SECOND - 1, Code.VALIDATION_FAILED),
    ],
)
def test_the_time_window_is_exact(kind: int, offset: int, expected: str) -> None:
    event = signed(kind=kind, created_at=NOW_NS + offset)

    assert judge(orjson.loads(event.to_json())) == expected


def test_an_event_exists_until_its_expiration() -> None:
    value = orjson.loads(signed(tags=[["expiration", str(NOW_NS)]]).to_json())

    assert judge(value, NOW_NS - 1) == "stored"
    assert judge(value, NOW_NS) == Code.VALIDATION_FAILED


def refuse(event: Event) -> None:
    raise ValidationFailed("policy")


def test_policies_come_before_the_id() -> None:
    event = parse_event(changed(content="another"))

    with pytest.raises(ValidationFailed, match="policy"):
        check(event, [refuse])
    with pytest.raises(ValidationFailed, match="event_id"):
        check(event)


def test_the_id_comes_before_the_weak_key_and_that_before_the_signature() -> None:
    weak = parse_event(VECTORS["forged"][12]["event"])
    assert weak.pubkey.startswith("01")

    with pytest.raises(ValidationFailed, match="weak key"):
        verify(weak)
    with pytest.raises(ValidationFailed, match="event_id"):
        verify(parse_event({**VECTORS["forged"][12]["event"], "content": "another"}))


def test_a_refusal_says_which_event_failed() -> None:
    with pytest.raises(ValidationFailed) as caught:
        verify(parse_event(VECTORS["forged"][1]["event"]))

    assert caught.value.event_id == VECTORS["forged"][1]["event"]["event_id"]


# Properties.

TAGS = st.lists(
    st.builds(
        lambda key, values: [key, *values],
        st.from_regex(r"[A-Za-z0-9_]{1,8}", fullmatch=True),
        st.lists(TEXT, max_size=4),
    ),
    max_size=4,
)


@settings(max_examples=60)
@given(TAGS, TEXT, st.integers(0, MAX_U64), st.integers(0, 65535))
def test_ids_are_those_of_a_straightforward_encoder(
    tags: list[list[str]], content: str, created_at: int, kind: int
) -> None:
    event = signed(kind=kind, content=content, created_at=created_at, tags=tags)
    value = orjson.loads(event.to_json())

    assert event.id == naive_id(value)
    assert parse_event(value) == event == known_event(event.to_json())
    verify(event)


@settings(max_examples=40)
@given(st.binary(max_size=40))
def test_content_of_any_octets_comes_back(content: bytes) -> None:
    event = signed(content=content)

    assert parse_event(orjson.loads(event.to_json())).content == content


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=100)
@given(st.dictionaries(st.sampled_from([*GOOD, "content_b64"]), JUNK))
def test_no_value_raises_anything_but_a_refusal(fields: dict[str, object]) -> None:
    for value in (fields, {**GOOD, **fields}):
        judge(value)
