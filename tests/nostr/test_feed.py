"""The changes feed's frames and its filter (NIP-CF)."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farthing.nostr.feed import (
    change_frame,
    changes_eose,
    changes_error,
    parse_changes_filter,
)
from farthing.nostr.filters import InvalidFilter, parse_filter

ALICE, BOB = "a" * 64, "b" * 64


class TestFrames:
    def test_a_change_has_the_event_unchanged(self) -> None:
        event = {"id": "x", "tags": [["e", "ü"]], "content": '"\n'}

        frame = json.loads(change_frame("s1", 43, json.dumps(event)))

        assert frame == ["CHANGES", "s1", "EVENT", 43, event]

    def test_eose_has_the_last_number(self) -> None:
        assert json.loads(changes_eose("s1", 50)) == ["CHANGES", "s1", "EOSE", 50]

    @pytest.mark.parametrize("behind", [0, 7])
    def test_eose_of_a_truncated_answer(self, behind: int) -> None:
        assert json.loads(changes_eose("s1", 50, behind)) == [
            "CHANGES", "s1", "EOSE", 50, {"truncated": True, "next": behind},
        ]  # fmt: skip

    def test_an_error_has_its_reason(self) -> None:
        assert json.loads(changes_error("s1", "invalid filter")) == [
            "CHANGES", "s1", "ERR", "invalid filter",
        ]  # fmt: skip

    @given(st.text(min_size=1, max_size=64).filter(str.isprintable), st.integers(1, 2**53))
    def test_any_subscription_id_comes_back_unchanged(self, subscription: str, number: int) -> None:
        frame = json.loads(change_frame(subscription, number, "{}"))

        assert frame == ["CHANGES", subscription, "EVENT", number, {}]


class TestFilter:
    def test_an_empty_filter_asks_for_everything_from_the_start(self) -> None:
        wanted = parse_changes_filter({})

        assert (wanted.since, wanted.limit, wanted.live) == (0, None, False)
        assert wanted.events == parse_filter({})

    def test_every_field_of_a_filter_is_read(self) -> None:
        wanted = parse_changes_filter(
            {"since": 42, "limit": 0, "live": True, "kinds": [1, 30023], "authors": [ALICE, BOB],
             "#t": ["x"], "#e": [ALICE]}
        )  # fmt: skip

        assert (wanted.since, wanted.limit, wanted.live) == (42, 0, True)
        assert wanted.events == parse_filter(
            {"kinds": [1, 30023], "authors": [ALICE, BOB], "#t": ["x"], "#e": [ALICE]}
        )

    def test_since_and_limit_are_no_seconds(self) -> None:
        """What NIP-01 would cut off at the largest created_at is a number like any other here."""
        wanted = parse_changes_filter({"since": 2**62, "limit": 2**62})

        assert (wanted.since, wanted.limit) == (2**62, 2**62)
        assert (wanted.events.since, wanted.events.limit) == (None, None)

    @pytest.mark.parametrize(
        "wrong",
        [
            None,
            [],
            "x",
            1,
            {"since": -1},
            {"since": "1"},
            {"since": 1.0},
            {"since": True},
            {"since": None},
            {"limit": -1},
            {"limit": "1"},
            {"limit": None},
            {"limit": False},
            {"live": 1},
            {"live": "true"},
            {"live": None},
            {"kinds": 1},
            {"kinds": ["1"]},
            {"kinds": [65536]},
            {"authors": ["abc"]},
            {"authors": ALICE},
            {"#t": "x"},
            {"#t": [1]},
            {"#e": ["not hex"]},
            {"#title": ["x"]},
            {"ids": [ALICE]},
            {"until": 5},
            {"unknown": 1},
            {"search": "x"},
            {"Since": 1},
        ],
    )
    def test_a_wrong_filter_is_refused(self, wrong: Any) -> None:
        with pytest.raises(InvalidFilter):
            parse_changes_filter(wrong)

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers(-5, 2**64 - 1) | st.text(max_size=5)
            | st.floats(allow_nan=False, allow_infinity=False),
            lambda inner: st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["since", "limit", "live", "kinds", "authors", "#t", "#p", "x"]),
                inner,
                max_size=4,
            ),
            max_leaves=8,
        )
    )  # fmt: skip
    def test_whatever_comes_is_understood_or_refused(self, value: Any) -> None:
        decoded = orjson.loads(orjson.dumps(value))
        try:
            wanted = parse_changes_filter(decoded)
        except InvalidFilter:
            return
        assert wanted.since >= 0 and (wanted.limit is None or wanted.limit >= 0)
