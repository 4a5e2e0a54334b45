"""Positions: one order in every form. The backlog: sorted, and read in pieces."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farthing.btp_nips.positions import (
    LAST,
    NUMBER_MAX,
    START,
    InvalidPosition,
    Position,
    backlog_behind,
    backlog_size,
    live,
    pack_backlog,
    parse_position,
    stored,
)
from tests.btp_nips.strategies import POSITION

IDS = st.binary(min_size=32, max_size=32).map(bytes.hex)
EVENTS = st.lists(st.tuples(st.integers(0, 3), IDS), max_size=20)


def test_every_stored_position_is_below_every_live_one() -> None:
    ordered = [START, stored(1), stored(2), stored(NUMBER_MAX), live(0), live(1), LAST]
    assert all(low < high for low, high in pairwise(ordered))
    assert [str(each) for each in ordered[:2]] == ["s:0", "s:1"]
    assert str(live(10)) == "n:10"


@given(POSITION, POSITION)
def test_text_and_number_keep_what_they_say(one: Position, other: Position) -> None:
    assert parse_position(str(one)) == one
    assert Position.from_int(one.to_int()) == one
    assert (one.to_int() < other.to_int()) is (one < other)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s",
        "s:",
        ":1",
        "S:1",
        "s:-1",
        "s:+1",
        "s:01",
        "s: 1",
        "s:1\n",
        "s:1.0",
        "x:1",
        "n:n",
        f"n:{NUMBER_MAX + 1}",
        "n:" + "9" * 16,
        "n:\u0661",
    ],
)
def test_text_that_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(InvalidPosition):
        parse_position(text)


@pytest.mark.parametrize("value", [-1, 2 * NUMBER_MAX + 2])
def test_a_number_that_is_no_position(value: int) -> None:
    with pytest.raises(InvalidPosition):
        Position.from_int(value)


@given(EVENTS, st.integers(0, 25), st.integers(0, 25))
def test_the_backlog_is_a_sorted_list(events: list[tuple[int, str]], after: int, most: int) -> None:
    naive = [id for _, id in sorted(set(events))]

    backlog = pack_backlog(events)

    assert backlog_size(backlog) == len(naive)
    assert len(backlog) == 32 * len(naive)
    expected = [(stored(at + 1), id) for at, id in enumerate(naive)][after : after + most]
    assert backlog_behind(backlog, stored(after), most) == expected
    assert backlog_behind(backlog, live(after), most) == []
