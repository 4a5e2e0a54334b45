"""Filter lists: merged ones match what the originals match, by the naive matcher."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farthing.btp_nips.errors import LimitExceeded
from farthing.btp_nips.filter_sets import (
    check_filters,
    fingerprint,
    merge_filters,
    same_filters,
)
from farthing.nostr.filters import Filter, parse_filter
from tests.nostr.naive import naive_match
from tests.nostr.test_filters import random_event, random_filter

A, B = "a" * 64, "b" * 64


def parsed(*filters) -> tuple[Filter, ...]:
    return tuple(map(parse_filter, filters))


def related_filters(dice: random.Random) -> list[dict[str, Any]]:
    """Most are like an earlier one but for one field: only such filters can be merged."""
    filters = [random_filter(dice)]
    for _ in range(dice.randint(0, 4)):
        other = random_filter(dice)
        if other and dice.random() < 0.8:
            key = dice.choice(list(other))
            other = dice.choice(filters) | {key: other[key]}
        filters.append(other)
    return filters


def test_merged_filters_match_the_same_events() -> None:
    dice = random.Random(2)
    fewer = 0
    for _ in range(3000):
        filters = related_filters(dice)
        merged = merge_filters(parsed(*filters))
        fewer += len(merged) < len(filters)
        for _ in range(8):
            event = random_event(dice).as_dict()
            expected = any(naive_match(event, filter) for filter in filters)
            found = any(naive_match(event, filter.as_dict()) for filter in merged)
            assert found is expected, (event, filters, merged)
    assert fewer > 600  # or this says little


@given(st.permutations([{"kinds": [k], "authors": [a]} for k in (1, 2) for a in (A, B)]))
def test_a_whole_grid_becomes_one(filters) -> None:
    assert merge_filters(parsed(*filters)) == parsed({"kinds": [1, 2], "authors": [A, B]})


@pytest.mark.parametrize(
    "filters",
    [
        [{"kinds": [1]}, {"authors": [A]}],
        [{"kinds": [1], "authors": [A]}, {"kinds": [2], "authors": [B]}],
        [{"kinds": [1]}, {"kinds": [1], "#t": ["x"]}],
        [{"kinds": [1], "since": 1}, {"kinds": [2], "since": 2}],
        [{"kinds": [1], "limit": 1}, {"kinds": [2], "limit": 1}],
        [{"kinds": [1], "limit": 1}, {"kinds": [2]}],
        [{"#t": ["x"]}, {"#T": ["x"]}],
    ],
)
def test_filters_that_differ_in_more_than_one_list_stay_apart(filters) -> None:
    assert same_filters(merge_filters(parsed(*filters)), parsed(*filters))


def test_filters_that_differ_in_one_list_are_merged() -> None:
    assert merge_filters(
        parsed({"#t": ["x"], "kinds": [1]}, {"#t": ["y"], "kinds": [1]})
    ) == parsed({"#t": ["x", "y"], "kinds": [1]})
    assert merge_filters(parsed({"kinds": [1], "limit": 1}, {"kinds": [1], "limit": 1})) == parsed(
        {"kinds": [1], "limit": 1}
    )
    assert merge_filters([]) == ()


def test_equal_lists_have_one_fingerprint() -> None:
    one = parsed({"kinds": [1, 2], "#t": ["x"]}, {"authors": [A]})
    other = parsed({"authors": [A]}, {"#t": ["x"], "kinds": [2, 1, 1]}, {"authors": [A, A]})

    assert same_filters(one, other) and fingerprint(one) == fingerprint(other)
    for different in (parsed({"authors": [A]}), parsed({"authors": [A], "limit": 1}), ()):
        assert not same_filters(one, different)
        assert fingerprint(one) != fingerprint(different)


def test_more_filters_or_values_than_the_limit_are_refused() -> None:
    filters = parsed({"kinds": [1, 2]}, {"authors": [A]})
    check_filters(filters, 2, 3)
    with pytest.raises(LimitExceeded):
        check_filters(filters, 1, 3)
    with pytest.raises(LimitExceeded):
        check_filters(filters, 2, 2)
