"""The account of a subscription: credit, the last position handed out, and the paid mark.

A pull is charged before its answer leaves, a push when a valid fulfillment has come. Both use
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
    paid_mark: Position = START  # the highest position charged, even with a fee of 0
    spent: int = 0  # amount spent on events
    delivered: int = 0  # events that were charged
    replays: int = 0  # events delivered again without charge

    def moved_to(self, position: Position) -> "Account":
        """The account after skipped events: deleted, replaced, expired or refused."""
        return replace(self, cursor=position)

    def replaced(self, credit: int) -> "Account":
        """The account after a change of filters, with added credit. Stored events are delivered
        again under new positions and charged again: the old paid mark would make them all free."""
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
    """The new account. `refilled` came from the purse and is already in the account's credit."""

    account: Account
    steps: int
    refilled: int
    stop: Stop | None


def hand_out(
    account: Account, terms: Terms, steps: Iterable[Step], *, purse: int, max_replays: int
) -> HandedOut:
    """Take as many steps, in order, as the terms and the money allow."""
    fee, most = terms.event_fee, terms.max_events
    credit, cursor, mark = account.credit, account.cursor, account.paid_mark
    taken = charged = replayed = refilled = 0
    stop = None
    for position, is_event in steps:
        if is_event and position <= mark:
            if account.replays + replayed >= max_replays:
                stop = Stop.REPLAYS
                break
            replayed += 1
        elif is_event:
            if most is not None and account.delivered + charged >= most:
                stop = Stop.EVENTS
                break
            added = refill(credit, purse - refilled, fee)
            if credit + added < fee:
                stop = Stop.CREDIT
                break
            credit += added - fee
            refilled += added
            charged += 1
            mark = position
        cursor = position
        taken += 1
    after = replace(
        account,
        credit=credit,
        cursor=cursor,
        paid_mark=mark,
        spent=account.spent + charged * fee,
        delivered=account.delivered + charged,
        replays=account.replays + replayed,
    )
    return HandedOut(after, taken, refilled, stop)
