"""Delivery by push: packets of amount 0 to the subscriber's address, in order. Each event is
charged when a valid fulfillment has come.

The caller that holds the lease (`leases`) serves a subscription. It commits after every ten events.
A caller that finds the lease held stops at once: the holder checks for new events again after it
has released the lease.
"""

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum, auto
from functools import partial
from secrets import SystemRandom
from typing import Final, NamedTuple

from farthing.btp_nips.account import Account, Step, Stop, hand_out
from farthing.btp_nips.codec import Written
from farthing.btp_nips.conditions import fulfillment_for
from farthing.btp_nips.fees import (
    LOW_CREDIT,
    LOW_CREDIT_FEES,
    CreditLevel,
    credit_level,
    low_credit_text,
    refill,
)
from farthing.btp_nips.identity import Owner
from farthing.btp_nips.lifecycle import Ending, after_eose
from farthing.btp_nips.positions import Position
from farthing.btp_nips.retries import (
    NextStep,
    after_reject,
    has_given_up,
    is_not_wanted,
    retry_delay,
)
from farthing.connector.sending import send_free
from farthing.connector.subscriptions.answering import messages_of, token_of
from farthing.connector.subscriptions.ending import end
from farthing.connector.subscriptions.leases import (
    LEASE_MS,
    Lease,
    LeaseHolder,
    LeaseLost,
    take_lease,
)
from farthing.connector.subscriptions.pulling import last_words
from farthing.connector.subscriptions.reading import Found, Reading, backlog_for
from farthing.context import Agent
from farthing.ilp.packet import Code, final
from farthing.ilp.reject import NextHopRejected, Rejected
from farthing.ports.meter import Metric
from farthing.ports.outbound import side_by_side
from farthing.store.paid_records import Offer, Trouble

_COMMIT_AFTER: Final = 10  # events
_AT_WORK_MS: Final = (
    40_000  # after this time another call continues, because calls have a time limit
)
_CLOSED_ATTEMPTS: Final = 5
_NO_REPLAY_LIMIT: Final = 2**62  # an event that is sent again was not fulfilled

# How a subscription ends when no more events can be handed out.
_ENDINGS: Final = {Stop.CREDIT: Ending.CREDIT, Stop.EVENTS: Ending.EVENTS}

_random = SystemRandom()


class Then(Enum):
    """What a delivery does after some packets."""

    GO_ON = auto()
    READ_AGAIN = auto()  # from the position that was committed last
    STOP = auto()


class Parcel(NamedTuple):
    """A packet to send, and the account after its fulfillment."""

    position: Position
    message: Written
    account: Account
    is_eose: bool = False
    is_event: bool = False


def deliver(agent: Agent, owner: Owner, subscription_id: str) -> None:
    """Send a subscription the events that it has not received yet."""
    while True:
        lease = take_lease(agent, owner, subscription_id)
        try:
            if lease is None or not _Delivery(agent, lease).run():
                return
        except LeaseLost:
            return


class _Delivery(LeaseHolder):
    """One delivery, which sends what is left."""

    def __init__(self, agent: Agent, lease: Lease) -> None:
        super().__init__(agent, lease)
        self._began_ms = agent.now_ms

    def run(self) -> bool:
        """Deliver until nothing is left. Returns whether there is more to do at once."""
        now = self._agent.now
        if self._agent.now_ms < self._old.trouble.retry_ms:
            self._leave()  # woken before the time of the next attempt, which has a wake of its own
            return False
        self._spread()
        subscription = self._old
        if not subscription.is_push or (subscription.state.has_ended and subscription.is_told):
            self._leave()
            return False
        if subscription.state.has_ended:
            self._say_goodbye()
            return False
        if not subscription.may_deliver(now):
            self._leave()
            self._end(Ending.TTL)
            return False
        start = subscription.account.cursor
        backlog = backlog_for(self._agent, subscription, start)
        reading = Reading(self._agent, subscription, backlog, start)
        return self._send_all(reading)

    # Other relays. Few subscriptions are passed on, so the modules for that are imported here.

    def _spread(self) -> None:
        """Pass the subscription on to other relays, as far as it asks for that."""
        agent, left = self._agent, self._old.offer
        if left is not None and not self._make(left, is_new=False):
            return
        is_open = self._old.may_deliver(agent.now)
        if not self._old.agreed.hops or self._old.is_spread or not is_open:
            return
        from farthing.connector.subscriptions.spreading import offers

        for offer_for in offers(agent, self._old):
            offer = offer_for(self._new.budget)
            if offer is None:
                continue
            self._reserve(offer)
            if not self._make(offer, is_new=True):
                return
        self._new = replace(self._new, is_spread=True)
        self._commit(goes_on=True)

    def _reserve(self, offer: Offer) -> None:
        """Take the payment of a relay out of the budget before the packet leaves. After a crash,
        another caller settles the payment when our lease is over."""
        self._store.wake_at(self._new, self._agent.now_ms + LEASE_MS + 1)
        account = replace(self._new.account, spent=self._new.account.spent + offer.amount)
        budget = self._new.budget - offer.amount
        self._new = replace(self._new, account=account, budget=budget, offer=offer)
        self._commit(goes_on=True)

    def _make(self, offer: Offer, *, is_new: bool) -> bool:
        """Pay a relay the reserved amount. Returns whether the outcome is known."""
        from farthing.connector.subscriptions.spreading import Outcome, make_offer

        agent = self._agent
        wanted = self._new.may_deliver(agent.now)
        outcome = make_offer(agent, offer, is_new=is_new, is_wanted=wanted)
        if outcome is Outcome.UNKNOWN:
            offer = offer._replace(attempts=offer.attempts + 1)
            self._new = replace(self._new, offer=offer)
            self._commit(goes_on=True)
            self._wake_at(self._next_try(offer.attempts))
            return False
        if outcome is Outcome.REFUSED:
            self._give_back(offer.amount)
        self._new = replace(self._new, offer=None)
        self._commit(goes_on=True)
        return True

    def _give_back(self, amount: int) -> None:
        """Return an amount to the budget, or to the owner if the subscription has ended."""
        after = self._new
        account = replace(after.account, spent=after.account.spent - amount)
        if not after.state.has_ended:
            self._new = replace(after, account=account, budget=after.budget + amount)
            return
        after = replace(after, account=account, returned=after.returned + amount, offer=None)
        funds = self._agent.subscription_funds.of(after.owner)
        along = [
            self._store.give_back(after.owner, amount),
            *self._agent.subscription_funds.move(
                funds, after.id, drawn=0, returned=amount, time_ms=self._agent.now_ms
            ),
        ]
        self._transact(after, along)

    # The steps after one wake

    def _send_all(self, reading: Reading) -> bool:
        while found := reading.take_at_once(self._old.agreed.window):
            if not self._old.may_deliver(self._agent.now):
                self._commit()
                self._end(Ending.TTL)
                return False
            self._keep_lease()
            then = self._send(found)
            if then is not Then.GO_ON:
                return then is Then.READ_AGAIN
            if self._agent.now_ms - self._began_ms > _AT_WORK_MS:
                self._commit()
                self._agent.wakes.wake(self._old.owner, self._old.id)
                return False
        cursor = max(self._new.account.cursor, reading.reached)
        self._new = replace(self._new, account=self._new.account.moved_to(cursor))
        if self._warn() is CreditLevel.GONE:
            self._commit()
            self._end(Ending.CREDIT)
            return False
        self._commit()
        return self._is_behind()

    def _send(self, found: Sequence[Found]) -> Then:
        """Send the found events, as many packets at once as the window allows."""
        parcels, stop = self._parcels(found)
        calls = [partial(self._try, each.message) for each in parcels]
        outcomes = side_by_side(self._agent.outbound, calls)
        for parcel, code in zip(parcels, outcomes, strict=True):
            if code is not None:
                return self._fail(parcel, code)
            self._fulfilled(parcel)
        if stop is not None:
            self._commit()
            self._end(_ENDINGS[stop])
            return Then.STOP
        if self._events >= _COMMIT_AFTER:
            self._warn()
            self._commit(goes_on=True)
        return Then.GO_ON

    def _parcels(self, found: Sequence[Found]) -> tuple[list[Parcel], Stop | None]:
        """The packets, as far as terms and credit allow."""
        account, terms = self._new.account, self._new.terms
        parcels: list[Parcel] = []
        for each in found:
            message, is_event = self._message(each, account)
            if is_event and account.credit < terms.event_fee:
                added = self._refill(account.credit)
                account = replace(account, credit=account.credit + added)
            outcome = hand_out(
                account, terms, [Step(each.position, is_event)], purse=0,
                max_replays=_NO_REPLAY_LIMIT,
            )  # fmt: skip
            if outcome.stop is not None:
                return parcels, outcome.stop
            account = outcome.account
            parcels.append(Parcel(each.position, message, account, each.is_eose, is_event))
        return parcels, None

    def _message(self, found: Found, account: Account) -> tuple[Written, bool]:
        """The message, and whether a fee is drawn for it."""
        messages, event = messages_of(self._agent, self._new), found.event
        if event is None:
            token = token_of(self._agent, self._new, found.position)
            stored = self._new.stored
            return messages.eose(found.position, stored, token, account.credit), False
        fee = self._new.terms.event_fee
        whole = messages.event(found.position, event.json, event.created_at, fee)
        if whole.fits:
            return whole, True
        return messages.too_large(found.position, event.id, event.created_at), False

    def _try(self, message: Written) -> str | None:
        """Send a message. None if it was fulfilled, else the code of the reject."""
        agent, subscription = self._agent, self._old
        data = message.envelope
        secret = bytes.fromhex(agent.settings.secret_key)
        fulfillment = fulfillment_for(subscription.owner, secret, data)
        address, wait = subscription.agreed.reply_to, agent.settings.subscription_packet_ms
        try:
            send_free(agent, address, data, fulfillment, wait)
        except NextHopRejected as rejected:
            return rejected.reject.code
        except Rejected as rejected:
            # A wrong preimage proves nothing about the subscriber.
            is_forged = rejected.code == Code.F05_WRONG_CONDITION
            return Code.T01_PEER_UNREACHABLE if is_forged else rejected.code
        return None

    def _fulfilled(self, parcel: Parcel) -> None:
        state = after_eose(self._new.state) if parcel.is_eose else self._new.state
        self._new = replace(self._new, account=parcel.account, state=state, trouble=Trouble())
        self._events += 1
        if parcel.is_event:
            self._agent.meter.count(Metric.EVENTS_DELIVERED)

    # Credit

    def _refill(self, credit: int) -> int:
        """Draw credit for further events from the owner's purse; 0 if the purse has too little. The
        draw comes before the packet leaves, so every delivered event is paid."""
        agent = self._agent
        funds = agent.subscription_funds.of(self._new.owner)
        amount = refill(credit, funds.drawable, self._new.terms.event_fee)
        if not amount:
            return 0
        self._commit(goes_on=True)
        account = replace(self._new.account, credit=self._new.account.credit + amount)
        after = replace(self._new, account=account, refilled=self._new.refilled + amount)
        moved = agent.subscription_funds.move(
            funds, after.id, drawn=amount, returned=0, time_ms=agent.now_ms
        )
        self._transact(after, moved)
        return amount

    def _warn(self) -> CreditLevel:
        """Send one NOTICE when little credit is left."""
        subscription = self._new
        fee, credit = subscription.terms.event_fee, subscription.account.credit
        if credit >= (fee if subscription.is_low else LOW_CREDIT_FEES * fee):
            return CreditLevel.ENOUGH
        drawable = self._agent.subscription_funds.of(subscription.owner).drawable
        level = credit_level(credit, drawable, fee)
        if level is CreditLevel.LOW and not subscription.is_low:
            self._new = replace(subscription, is_low=True)
            self._commit(goes_on=True)  # before the subscriber answers with a top-up
            text = low_credit_text(credit, drawable, fee)
            messages = messages_of(self._agent, subscription)
            self._try(messages.notice(LOW_CREDIT, text, self._agent.now))
        return level

    # Ends

    def _end(self, ending: Ending) -> None:
        end(self._agent, self._new, ending)
        # The wake is for CLOSED, or for further events if a top-up has extended the time meanwhile.
        self._agent.wakes.wake(self._new.owner, self._new.id)

    def _say_goodbye(self) -> None:
        """Send CLOSED to the owner of a subscription that has ended."""
        subscription = self._old
        left = 0
        if subscription.ending == Ending.CREDIT:
            left = self._agent.subscription_funds.of(subscription.owner).drawable
        ending = Ending(subscription.ending)
        codes = [self._try(each) for each in last_words(self._agent, subscription, ending, left)]
        attempts = subscription.trouble.attempts + 1
        is_over = codes[-1] is None or final(codes[-1]) or attempts >= _CLOSED_ATTEMPTS
        retry_ms = 0 if is_over else self._next_try(attempts)
        trouble = replace(subscription.trouble, attempts=attempts, retry_ms=retry_ms)
        self._new = replace(subscription, is_told=is_over, trouble=trouble)
        self._commit()
        if not is_over:
            self._wake_at(retry_ms)

    # Failures

    def _fail(self, parcel: Parcel, code: str) -> Then:
        agent, now = self._agent, self._agent.now
        trouble = self._new.trouble
        trouble = Trouble(
            failures=trouble.failures + 1,
            since=trouble.since or now,
            refusals=trouble.refusals + 1 if is_not_wanted(code) else 0,
            attempts=trouble.attempts + 1 if final(code) else trouble.attempts,
        )
        settings = agent.settings
        step = after_reject(
            code,
            attempts=trouble.attempts,
            not_wanted_in_a_row=trouble.refusals,
            most=settings.subscription_attempts,
        )
        if has_given_up(trouble.since, now, settings.subscription_give_up_seconds):
            step = NextStep.CLOSE
        if step is NextStep.SKIP:
            self._skip(parcel)
            return Then.READ_AGAIN
        retry_ms = self._next_try(trouble.failures)
        self._new = replace(self._new, trouble=replace(trouble, retry_ms=retry_ms))
        self._commit()
        if step is NextStep.CLOSE:
            self._end(Ending.UNREACHABLE)
        else:
            self._wake_at(retry_ms)
        return Then.STOP

    def _skip(self, parcel: Parcel) -> None:
        """Skip an event that the receiver refuses. It is not charged. The packets behind it in the
        window are sent again: nobody has paid for them, and some may not have arrived."""
        state = after_eose(self._new.state) if parcel.is_eose else self._new.state
        account = self._new.account.moved_to(parcel.position)
        self._new = replace(self._new, account=account, state=state, trouble=Trouble())
        self._commit()

    def _next_try(self, failures: int) -> int:
        return self._agent.now_ms + int(1000 * retry_delay(failures, _random.random()))

    def _wake_at(self, time_ms: int) -> None:
        self._store.wake_at(self._new, time_ms)
        delay = max(0, time_ms - self._agent.now_ms) / 1000
        self._agent.wakes.wake(self._new.owner, self._new.id, delay)

    def _is_behind(self) -> bool:
        """Whether new events have come for which no caller was woken, because we held the lease."""
        reading = Reading(self._agent, self._new, b"", self._new.account.cursor)
        return bool(reading.take(1))
