"""Retries: delays that double, events passed over after five refusals, an end after three."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farthing.btp_nips.retries import NextStep, after_reject, has_given_up, retry_delay


def test_delays_double_up_to_five_minutes() -> None:
    assert [retry_delay(failures, 0) for failures in range(1, 12)] == [
        *(1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300)
    ]


@given(st.integers(0, 10**6), st.floats(0, 1))
def test_chance_takes_up_to_half(failures: int, chance: float) -> None:
    whole = retry_delay(failures, 0)
    assert whole / 2 <= retry_delay(failures, chance) <= whole <= 300


@pytest.mark.parametrize("code", ["T00", "T01", "T05", "R00", "R02", "T99"])
def test_what_is_temporary_is_tried_again_for_ever(code: str) -> None:
    assert after_reject(code, attempts=99, not_wanted_in_a_row=0, most=5) is NextStep.RETRY


@pytest.mark.parametrize("code", ["F00", "F05", "F99", "F77"])
def test_what_is_final_is_passed_over_after_five_attempts(code: str) -> None:
    assert after_reject(code, attempts=4, not_wanted_in_a_row=0, most=5) is NextStep.RETRY
    assert after_reject(code, attempts=5, not_wanted_in_a_row=0, most=5) is NextStep.SKIP


@pytest.mark.parametrize("code", ["F02", "F06", "F07"])
def test_three_refusals_in_a_row_close_the_subscription(code: str) -> None:
    assert after_reject(code, attempts=2, not_wanted_in_a_row=2, most=5) is NextStep.RETRY
    assert after_reject(code, attempts=3, not_wanted_in_a_row=3, most=5) is NextStep.CLOSE


def test_a_subscriber_is_given_up_after_an_hour_without_success() -> None:
    assert not has_given_up(None, 10**9, 3600)
    assert not has_given_up(1000, 4599, 3600)
    assert has_given_up(1000, 4600, 3600)
