"""The account of a subscription: credit, the last position handed out, and the paid mark.

A pull draws before its answer leaves, a push when its true fulfillment is here. Both go through
`hand_out`, so a position is charged at most once, however often it is delivered.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from farthing.btp_nips.fees import Terms, refill
from farthing.btp_nips.positions import START, Position


@dataclass(frozen=True, slots=True)
class Account:
    credit: int
    cursor: Position = START  # the last position handed out
    paid_mark: Position = START  # the highest position charged, be it with a fee of 0
    spent: int = 0  # on events
    delivered: int = 0  # events that were charged
    replays: int = 0  # events delivered again, for nothing

    def moved_to(self, position: Position) -> "Account":
        """Behind events that are skipped: deleted, replaced, expired or refused."""
        return replace(self, cursor=position)

    def replaced(self, credit: int) -> "Account":
        """With other filters, and so much more credit. Stored events come again under positions of
        their own, so they are charged anew: a paid mark left standing would make them all free."""
        return replace(self, credit=self.credit + credit, cursor=START, paid_mark=START)


class Step(NamedTuple):
    """A message to hand out. Only events are charged: EOSE and NOTICE are not."""

    position: Position
    is_event: bool = True


class Stop(StrEnum):
    """Why not all steps were taken."""

    CREDIT = "credit"  # credit and purse are below one fee
    EVENTS = "events"  # a free subscription has delivered all its events
    REPLAYS = "replays"  # too many were delivered again


class HandedOut(NamedTuple):
    """What becomes of an account. `refilled` is in its credit already and comes from the purse."""

    account: Account
    steps: int
    refilled: int
    stop: Stop | None


def hand_out(
    account: Account, terms: Terms, steps: Iterable[Step], *, purse: int, max_replays: int
) -> HandedOut:
    """Take as many steps, in their order, as the terms and the money allow."""
    taken, refilled = 0, 0
    for step in steps:
        if step.is_event:
            if step.position <= account.paid_mark:
                outcome: Account | Stop = _replay(account, max_replays)
            else:
                added = refill(account.credit, purse - refilled, terms.event_fee)
                outcome = _charge(account, terms, step.position, added)
                refilled += added if isinstance(outcome, Account) else 0
            if isinstance(outcome, Stop):
                return HandedOut(account, taken, refilled, outcome)
            account = outcome
        account = account.moved_to(step.position)
        taken += 1
    return HandedOut(account, taken, refilled, None)


def _replay(account: Account, most: int) -> Account | Stop:
    if account.replays >= most:
        return Stop.REPLAYS
    return replace(account, replays=account.replays + 1)


def _charge(account: Account, terms: Terms, position: Position, added: int) -> Account | Stop:
    if terms.max_events is not None and account.delivered >= terms.max_events:
        return Stop.EVENTS
    left = account.credit + added - terms.event_fee
    if left < 0:
        return Stop.CREDIT
    return replace(
        account,
        credit=left,
        paid_mark=position,
        spent=account.spent + terms.event_fee,
        delivered=account.delivered + 1,
    )
