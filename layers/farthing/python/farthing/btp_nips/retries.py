"""The next step after a delivery by push is rejected: try again, skip the event, or end the
subscription."""

from enum import StrEnum
from typing import Final

from farthing.ilp.packet import Code, final

FIRST_DELAY_SECONDS: Final = 1
LAST_DELAY_SECONDS: Final = 300
CLOSING_REFUSALS: Final = 3

# The codes for a receiver that does not exist, does not know the subscription, or may not receive.
_NOT_WANTED: Final = frozenset(
    {Code.F02_UNREACHABLE, Code.F06_UNEXPECTED_PAYMENT, Code.F07_CANNOT_RECEIVE}
)


class NextStep(StrEnum):
    RETRY = "retry"
    SKIP = "skip"  # skip this event without a charge
    CLOSE = "close"


def retry_delay(failures: int, chance: float) -> float:
    """Seconds until the next attempt, after `failures` failures in a row (at least 1).

    `chance` is random, from 0 to 1, and shortens the delay by up to half. So the attempts for all
    subscribers behind one hop do not come at once.
    """
    doublings = min(max(failures, 1) - 1, LAST_DELAY_SECONDS.bit_length())
    delay = min(FIRST_DELAY_SECONDS << doublings, LAST_DELAY_SECONDS)
    return delay * (1 - chance / 2)


def is_not_wanted(code: str) -> bool:
    return code in _NOT_WANTED


def after_reject(code: str, *, attempts: int, not_wanted_in_a_row: int, most: int) -> NextStep:
    """`attempts` counts final rejects of this event and `not_wanted_in_a_row` F02, F06 and F07 of
    any event, both with this one."""
    if is_not_wanted(code) and not_wanted_in_a_row >= CLOSING_REFUSALS:
        return NextStep.CLOSE
    if final(code) and attempts >= most:
        return NextStep.SKIP
    return NextStep.RETRY


def has_given_up(unreachable_since: int | None, now: int, give_up_seconds: int) -> bool:
    """Whether nothing has been fulfilled for too long."""
    return unreachable_since is not None and now - unreachable_since >= give_up_seconds
