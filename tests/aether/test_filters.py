"""Filters: refused with a reason, and matching as a deliberately naive matcher does."""

import random
from typing import Any

import pytest

from farthing.aether.errors import Code
from farthing.aether.events import Event
from farthing.aether.filters import Filter, InvalidFilter, parse_filter
from farthing.aether.numbers import MAX_U64
from tests.aether.naive import naive_match

# Two of the keys begin alike, as far as a prefix of 32 digits reaches.
A, B, C = "a" * 64, "a" * 32 + "b" * 32, "c" * 64
KEYS = [A, B, C]
PREFIXES = [*KEYS, A[:32], C[:32]]


def some(dice: random.Random, values: list[Any]) -> list[Any]:
    return dice.sample(values, dice.randint(0 if dice.random() < 0.1 else 1, len(values)))


def random_event(dice: random.Random) -> Event:
    tags = tuple(
        (
            dice.choice(["t", "e", "long_key"]),
            *dice.choices(["x", "y", "z", ""], k=dice.randint(0, 3)),
        )
        for _ in range(dice.randint(0, 4))
    )
    time, kind = dice.choice([0, 1, 2, MAX_U64]), dice.randint(0, 3)
    return Event(dice.choice(KEYS), dice.choice(KEYS), time, kind, tags, b"", "")


def random_filter(dice: random.Random) -> dict[str, Any]:
    def time() -> int | str:
        number = dice.choice([0, 1, 2, MAX_U64])
        return dice.choice([number, str(number)])

    def tags() -> Any:
        groups = {key: some(dice, ["x", "y", ""]) for key in some(dice, ["t", "e"])}
        return dice.choice([groups, [[key, values] for key, values in groups.items()]])

    choices: dict[str, Any] = {
        "ids": lambda: some(dice, KEYS),
        "authors": lambda: some(dice, KEYS),
        "pubkey_prefixes": lambda: some(dice, PREFIXES),
        "kinds": lambda: some(dice, [0, 1, 2, 3]),
        "tags": tags,
        "#long_key": lambda: some(dice, ["x", "y", "z"]),
        "since": time,
        "until": time,
        "limit": lambda: dice.randint(0, 9),
    }
    return {key: choices[key]() for key in choices if dice.random() < 0.2}


def test_matches_what_the_naive_matcher_matches() -> None:
    dice = random.Random(1)
    matched = 0
    for _ in range(10_000):
        event, value = random_event(dice), random_filter(dice)
        expected = naive_match(event.as_dict(), value)
        found = parse_filter(value)

        assert found.matches(event) is expected, (event, value)
        assert parse_filter(found.as_dict()) == found
        if expected and found.authors is not None:
            assert event.pubkey[:32] in {author[:32] for author in found.authors}
        matched += expected
    assert 2_000 < matched < 8_000  # both answers are common, or this says little


def event(*tags: tuple[str, ...], created_at: int = 5) -> Event:
    return Event(A, A, created_at, 1, tags, b"", "")


def test_any_value_of_a_tag_counts() -> None:
    wanted = parse_filter({"tags": {"t": ["x", "yy"]}})

    assert wanted.matches(event(("t", "q", "yy")))
    assert wanted.matches(event(("t", "q"), ("t", "x")))
    assert not wanted.matches(event(("t", "q"), ("u", "x")))


def test_tags_are_anded_across_keys() -> None:
    wanted = parse_filter({"tags": {"t": ["x"], "c": ["y"]}})

    assert wanted.matches(event(("t", "x"), ("c", "y")))
    assert not wanted.matches(event(("t", "x")))


@pytest.mark.parametrize(
    "tags",
    [
        {"t": ["x", "y"]},
        [["t", ["x", "y"]]],
        [["t", ["x"]], ["t", ["y"]]],
        [["t", "x", "y"]],
        [["t", "x"], ["t", "y"]],
    ],
    ids=repr,
)
def test_tags_are_a_map_or_pairs(tags: object) -> None:
    assert parse_filter({"tags": tags}) == Filter(tags={"t": frozenset({"x", "y"})})
    assert parse_filter({"tags": tags}) == parse_filter({"#t": ["x", "y"]})


def test_since_and_until_are_inclusive() -> None:
    window = parse_filter({"since": "4", "until": 6})

    assert [window.matches(event(created_at=time)) for time in (3, 4, 6, 7)] == [
        False,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "filter",
        {"search": "x"},
        {"author": [A]},
        {"ids": A},
        {"ids": [A[:63]]},
        {"ids": [A.upper()]},
        {"ids": [5]},
        {"authors": [A[:32]]},
        {"pubkey_prefixes": [A[:31]]},
        {"pubkey_prefixes": [A[:48]]},
        {"pubkey_prefixes": [A[:31] + "G"]},
        {"pubkey_prefixes": [""]},
        {"kinds": 1},
        {"kinds": ["1"]},
        {"kinds": [True]},
        {"kinds": [65536]},
        {"kinds": [1.0]},
        {"since": -1},
        {"since": 1.5},
        {"since": "1.5"},
        {"until": True},
        {"until": 2**64},
        {"until": str(2**64)},
        {"limit": "1"},
        {"limit": -1},
        {"limit": True},
        {"tags": 5},
        {"tags": {"t": "x"}},
        {"tags": {"t": [5]}},
        {"tags": {"far_too_long": ["x"]}},
        {"tags": [[]]},
        {"tags": ["t"]},
        {"tags": [["t", ["x"], "y"]]},
        {"tags": [[["t"], "x"]]},
        {"#": ["x"]},
        {"#a-b": ["x"]},
        {"#t": "x"},
        {"#t": ["x"], "tags": {"t": ["y"]}},
    ],
    ids=repr,
)
def test_what_cannot_be_understood_is_refused(value: object) -> None:
    with pytest.raises(InvalidFilter) as caught:
        parse_filter(value)

    assert caught.value.code is Code.INVALID_MESSAGE


def test_an_empty_list_matches_nothing_and_an_absent_one_everything() -> None:
    assert parse_filter({}).matches(event())
    assert parse_filter({"tags": {}}).matches(event())
    for name in ("ids", "authors", "pubkey_prefixes", "kinds", "#t"):
        assert not parse_filter({name: []}).matches(event(("t", "")))


def test_limits_are_filled_in_and_cut() -> None:
    assert parse_filter({}).with_limit(5, 10).limit == 5
    assert parse_filter({"limit": 7}).with_limit(5, 10).limit == 7
    assert parse_filter({"limit": 70}).with_limit(5, 10).limit == 10


def test_values_are_counted_across_fields() -> None:
    assert parse_filter({"ids": [A], "kinds": [1, 2], "#t": ["x", "y", "z"]}).value_count() == 6
