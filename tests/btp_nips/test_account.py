"""Accounts: each position is charged at most once and no unit is lost, against a plain model."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from farthing.btp_nips.account import Account, Step, Stop, hand_out
from farthing.btp_nips.fees import Terms
from farthing.btp_nips.lifecycle import delivery_start
from farthing.btp_nips.models import Model
from farthing.btp_nips.positions import START, Position, live, stored

STREAMING = Terms(Model.STREAMING, 1000, 10, 0, 86400)
FREE = Terms(Model.FREE, 0, 0, 0, 3600, max_events=3)


def steps(*numbers: int) -> list[Step]:
    return [Step(stored(number)) for number in numbers]


def given_out(account: Account, *numbers: int, terms: Terms = STREAMING, purse=0, most=9):
    return hand_out(account, terms, steps(*numbers), purse=purse, max_replays=most)


def test_each_event_takes_its_fee() -> None:
    account, taken, refilled, stop = given_out(Account(100), 1, 2, 3)
    assert account == Account(70, stored(3), stored(3), spent=30, delivered=3)
    assert (taken, refilled, stop) == (3, 0, None)


def test_credit_ends_between_two_events() -> None:
    account, taken, _, stop = given_out(Account(25), 1, 2, 3)
    assert (account.credit, account.cursor, taken, stop) == (5, stored(2), 2, Stop.CREDIT)


def test_the_purse_refills_the_credit_in_steps() -> None:
    account, taken, refilled, stop = given_out(Account(15), 1, 2, 3, purse=5000)
    assert (account.credit, taken, refilled, stop) == (15 + 1000 - 30, 3, 1000, None)


@given(st.integers(0, 300), st.integers(0, 3000), st.integers(0, 12), st.integers(0, 60))
def test_credit_and_purse_pay_for_as_many_as_they_can(
    credit: int, purse: int, fee: int, events: int
) -> None:
    terms = replace(STREAMING, event_fee=fee)

    account, taken, refilled, stop = given_out(
        Account(credit), *range(1, events + 1), terms=terms, purse=purse
    )

    assert credit + refilled == account.credit + account.spent
    assert 0 <= refilled <= purse and account.credit >= 0
    assert taken == (events if fee == 0 else min(events, (credit + purse) // fee))
    assert stop is (None if taken == events else Stop.CREDIT)
    if refilled:  # the purse is not touched before the credit is used up
        assert taken > credit // fee


def test_at_or_below_the_paid_mark_delivering_again_is_free_for_some_times() -> None:
    account = given_out(Account(100), 1, 2).account
    again = given_out(account, 1, 2, 3)
    assert (again.account.credit, again.account.replays) == (70, 2)
    assert given_out(account, 1, 2, 3, most=1)[1:] == (1, 0, Stop.REPLAYS)


def test_what_is_no_event_costs_nothing() -> None:
    end = Step(live(7), is_event=False)
    account, taken, _, stop = hand_out(Account(0), STREAMING, [end], purse=0, max_replays=0)
    assert (account, taken, stop) == (Account(0, cursor=live(7)), 1, None)


def test_a_free_subscription_has_its_number_of_events() -> None:
    account, taken, _, stop = given_out(Account(0), 1, 2, 3, 4, terms=FREE)
    assert (account.delivered, taken, stop) == (3, 3, Stop.EVENTS)
    assert given_out(account, 2, 3, terms=FREE).steps == 2


def test_an_event_that_is_not_handed_out_moves_no_money() -> None:
    terms = replace(STREAMING, max_events=0)
    assert given_out(Account(0), 1, terms=terms, purse=100) == (Account(0), 0, 0, Stop.EVENTS)


def test_other_filters_begin_anew_with_the_same_money() -> None:
    old = hand_out(Account(100), STREAMING, [Step(live(9))], purse=0, max_replays=0).account
    new = old.replaced(credit=50)
    assert new == Account(140, spent=10, delivered=1)
    assert given_out(new, 1).account.credit == 130
    free = given_out(Account(0), 1, 2, 3, terms=FREE).account.replaced(credit=0)
    assert given_out(free, 1, terms=FREE).stop is Stop.EVENTS


@pytest.mark.parametrize("purse", [0, 9])
def test_a_purse_that_does_not_reach_is_left_alone(purse: int) -> None:
    account, taken, refilled, stop = given_out(Account(0), 1, purse=purse)
    assert (account, taken, refilled, stop) == (Account(0), 0, 0, Stop.CREDIT)


class Pulling(RuleBasedStateMachine):
    """Pulls with and without `after`, top-ups and fills, beside sets and sums."""

    def __init__(self) -> None:
        super().__init__()
        self.account = Account(0)
        self.purse = 0
        self.paid_in = 0
        self.log = [stored(k) for k in range(1, 6)] + [live(n) for n in range(10, 14)]
        self.charged: list[Position] = []
        self.received: set[Position] = set()

    @rule(amount=st.integers(0, 60))
    def top_up(self, amount: int) -> None:
        self.account = replace(self.account, credit=self.account.credit + amount)
        self.paid_in += amount

    @rule(amount=st.integers(0, 60))
    def fill_purse(self, amount: int) -> None:
        self.purse += amount
        self.paid_in += amount

    @rule()
    def publish(self) -> None:
        self.log.append(live(self.log[-1].number + 1))

    @rule(most=st.integers(1, 6), data=st.data())
    def pull(self, most: int, data: st.DataObject) -> None:
        after = data.draw(st.none() | st.sampled_from([START, *self.log]))
        start = delivery_start(self.account.cursor, self.account.paid_mark, after)
        found = [position for position in self.log if position > start][:most]
        before = self.account

        self.account, taken, refilled, stop = hand_out(
            before, STREAMING, map(Step, found), purse=self.purse, max_replays=10
        )

        self.purse -= refilled
        self.received.update(found[:taken])
        self.charged += [position for position in found[:taken] if position > before.paid_mark]
        assert (stop is None) is (taken == len(found))
        if stop is Stop.CREDIT:
            assert self.account.credit + self.purse < STREAMING.event_fee

    @invariant()
    def each_position_is_charged_once_and_in_order(self) -> None:
        assert self.charged == self.log[: len(self.charged)]
        assert self.account.spent == len(self.charged) * STREAMING.event_fee
        assert self.received == set(self.charged)

    @invariant()
    def no_unit_is_lost(self) -> None:
        assert self.paid_in == self.account.credit + self.account.spent + self.purse
        assert self.account.credit >= 0 and self.purse >= 0


Pulling.TestCase.settings = settings(max_examples=40, stateful_step_count=25)
TestPulling = Pulling.TestCase
