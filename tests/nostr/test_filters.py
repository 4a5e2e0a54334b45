"""Filters: refused with a reason, and matching as a deliberately naive matcher does."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farthing.nostr.events import MAX_CREATED_AT, Event
from farthing.nostr.filters import Filter, InvalidFilter, parse_filter
from tests.nostr.naive import naive_match

A, B, C = ("a" * 64, "b" * 64, "c" * 64)
HEX = [A, B, C]


def some(dice: random.Random, values: list[Any]) -> list[Any]:
    return dice.sample(values, dice.randint(0 if dice.random() < 0.1 else 1, len(values)))


def random_event(dice: random.Random) -> Event:
    tags = tuple(
        dice.choice(
            [(dice.choice("etX"), dice.choice([*HEX, "x", "y", ""])), ("e",), (), ("tt", A)]
        )
        for _ in range(dice.randint(0, 4))
    )
    return Event(
        dice.choice(HEX), dice.choice(HEX), dice.randint(0, 4), dice.randint(0, 3), tags, "", ""
    )


def random_filter(dice: random.Random) -> dict[str, Any]:
    choices: dict[str, Any] = {
        "ids": lambda: some(dice, HEX),
        "authors": lambda: some(dice, HEX),
        "kinds": lambda: some(dice, [0, 1, 2, 3]),
        "#e": lambda: some(dice, HEX),
        "#t": lambda: some(dice, [A, "x", "y", ""]),
        "#X": lambda: some(dice, ["x", "y"]),
        "since": lambda: dice.randint(0, 4),
        "until": lambda: dice.randint(0, 4),
        "limit": lambda: dice.randint(0, 9),
    }
    return {key: choices[key]() for key in choices if dice.random() < 0.25}


def test_matches_what_the_naive_matcher_matches() -> None:
    dice = random.Random(1)
    matched = 0
    for _ in range(20_000):
        event, filter = random_event(dice), random_filter(dice)

        expected = naive_match(event.as_dict(), filter)

        assert parse_filter(filter).matches(event) is expected, (event, filter)
        matched += expected
    assert 4_000 < matched < 16_000  # both answers are common, or this says little


class TestMatching:
    EVENT = Event(A, B, 100, 1, (("t", "x"), ("t", "y"), ("e", C)), "", "")

    @pytest.mark.parametrize(
        ("filter", "matches"),
        [
            ({}, True),
            ({"since": 100}, True),
            ({"since": 101}, False),
            ({"until": 100}, True),
            ({"until": 99}, False),
            ({"since": 100, "until": 100}, True),
            ({"since": 101, "until": 99}, False),
            ({"limit": 0}, True),  # says how much of what is stored, not what matches
            ({"#t": ["x", "y"]}, True),
            ({"#t": ["y"], "#e": [C]}, True),
            ({"#t": ["y"], "#e": [A]}, False),
            ({"#T": ["x"]}, False),
        ],
    )
    def test_an_event_matches_if_every_condition_holds(
        self, filter: dict[str, Any], matches: bool
    ) -> None:
        assert parse_filter(filter).matches(self.EVENT) is matches

    @pytest.mark.parametrize("key", ["ids", "authors", "kinds", "#t", "#e"])
    def test_an_empty_array_matches_nothing(self, key: str) -> None:
        assert not parse_filter({key: []}).matches(self.EVENT)


class TestRefusal:
    @pytest.mark.parametrize("value", [None, [], "kinds", 1, True])
    def test_a_filter_is_an_object(self, value: object) -> None:
        with pytest.raises(InvalidFilter, match=r"^filter is not an object$"):
            parse_filter(value)

    @pytest.mark.parametrize("key", ["ids", "authors", "kinds", "#e", "#p", "#t"])
    @pytest.mark.parametrize("content", [None, A, 1, {}, True])
    def test_lists_are_arrays(self, key: str, content: object) -> None:
        with pytest.raises(InvalidFilter, match=f"^{key} is not an array$"):
            parse_filter({key: content})

    @pytest.mark.parametrize("key", ["ids", "authors", "#e", "#p"])
    @pytest.mark.parametrize("value", ["", "aa", A.upper(), A + "a", A[:-1] + "\n", 1, None, [A]])
    def test_keys_are_whole_lowercase_hexadecimal(self, key: str, value: object) -> None:
        reason = f"^{key} holds something other than 64 lowercase hexadecimal digits$"
        with pytest.raises(InvalidFilter, match=reason):
            parse_filter({key: [A, value]})

    @pytest.mark.parametrize("value", [1, None, ["x"], True])
    def test_tag_values_are_strings(self, value: object) -> None:
        with pytest.raises(InvalidFilter, match=r"^#t holds something other than strings$"):
            parse_filter({"#t": ["x", value]})

    @pytest.mark.parametrize("value", ["1", 1.0, True, None, -1, 65536, 2.0**64])
    def test_kinds_are_numbers_in_range(self, value: object) -> None:
        reason = "^kinds holds something other than numbers from 0 to 65535$"
        with pytest.raises(InvalidFilter, match=reason):
            parse_filter({"kinds": [1, value]})

    @pytest.mark.parametrize("key", ["since", "until", "limit"])
    @pytest.mark.parametrize("value", ["1", 1.5, True, None, -1, [1]])
    def test_numbers_are_whole(self, key: str, value: object) -> None:
        with pytest.raises(InvalidFilter, match=f"^{key} is not a whole number$"):
            parse_filter({key: value})

    @pytest.mark.parametrize("key", ["search", "#tt", "#", "#1", "#é", "IDs", "", "x" * 500])
    def test_an_unknown_key_is_not_passed_over(self, key: str) -> None:
        with pytest.raises(InvalidFilter, match=r"^unknown filter key '") as refused:
            parse_filter({key: ["x"]})

        assert len(str(refused.value)) < 80  # a client's long key is not thrown back at it


class TestForms:
    VALUES = st.lists(st.sampled_from(HEX), max_size=3)
    FILTERS = st.fixed_dictionaries(
        {},
        optional={
            "ids": VALUES,
            "authors": VALUES,
            "kinds": st.lists(st.integers(0, 65535), max_size=3),
            "#e": VALUES,
            "#Z": st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=3),
            "since": st.integers(0, MAX_CREATED_AT),
            "until": st.integers(0, MAX_CREATED_AT),
            "limit": st.integers(0, 10_000),
        },
    )

    @given(value=FILTERS)
    def test_a_filter_that_is_written_is_read_back(self, value: dict[str, Any]) -> None:
        filter = parse_filter(value)

        assert parse_filter(filter.as_dict()) == filter

    @given(value=FILTERS)
    def test_a_filter_is_written_with_the_fields_it_came_with(self, value: dict[str, Any]) -> None:
        written = parse_filter(value).as_dict()

        expected = {
            key: sorted(set(content)) if isinstance(content, list) else content
            for key, content in value.items()
        }
        assert written == expected

    def test_equal_filters_are_written_in_one_order(self) -> None:
        one = parse_filter({"#t": ["y", "x"], "#e": [B, A], "kinds": [2, 1], "limit": 1})
        other = parse_filter({"limit": 1, "kinds": [1, 2], "#e": [A, B], "#t": ["x", "y"]})

        assert list(one.as_dict().items()) == list(other.as_dict().items())

    @pytest.mark.parametrize("key", ["since", "until", "limit"])
    def test_numbers_beyond_time_itself_are_cut(self, key: str) -> None:
        assert parse_filter({key: 2**63}) == parse_filter({key: MAX_CREATED_AT})

    @pytest.mark.parametrize(
        ("given", "applied"), [(None, 500), (0, 0), (10, 10), (5000, 5000), (5001, 5000)]
    )
    def test_a_limit_is_lowered_to_the_largest_and_defaults_if_missing(
        self, given: int | None, applied: int
    ) -> None:
        assert Filter(limit=given).with_limit(500, 5000).limit == applied

    def test_values_are_counted_over_all_lists(self) -> None:
        filter = parse_filter({"ids": [A, B], "kinds": [1], "#t": ["x", "y", "z"], "since": 5})

        assert filter.value_count() == 6
        assert parse_filter({}).value_count() == 0
