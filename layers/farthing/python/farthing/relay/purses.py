"""Events that are paid from a purse: the choice of the purse, and one transaction of event, draw
and receipt.

Only an authenticated key pays, because anybody can send another author's events again.
"""

import logging
from collections.abc import Callable, Iterator, Sequence

from farthing.context import Agent
from farthing.ilp.money import readable
from farthing.nostr.events import Event
from farthing.nostr.kinds import Keeping
from farthing.nostr.messages import Prefix, Refused
from farthing.ports.meter import Metric
from farthing.relay.fan_out import fan_out
from farthing.relay.price import Charge
from farthing.relay.room import gives_room_back, may_give_room_back
from farthing.settings import Settings
from farthing.store.events import Outcome
from farthing.store.payment import ROOM, Payment, PaymentRefused
from farthing.store.purses import Movement, MovementKind, Purse, Way, drawn_once
from farthing.store.receipts import Stored
from farthing.store.table import TransactionCancelled

log = logging.getLogger("farthing")

_MOST_SEEN = 10_000

# The keys that the sender of the event has proved to hold, in the order of the proofs.
Identify = Callable[[], Sequence[str]]


class PaymentNeeded(Refused):
    """No purse has paid for an event."""


class AuthRequired(Refused):
    """Only the author may publish this event, and the author is not authenticated."""

    def __init__(self, why: str) -> None:
        super().__init__(Prefix.AUTH_REQUIRED, why)


def check_protected(event: Event, keys: Sequence[str]) -> None:
    if event.is_protected and event.pubkey not in keys:
        raise AuthRequired("only its author may publish this event (NIP-70)")


def store_priced(agent: Agent, event: Event, charge: Charge, identify: Identify) -> Outcome:
    """Store an event that has passed the policies, paid from a purse of its sender. Raises Refused
    if no purse can pay."""
    if may_give_room_back(event):
        keys, is_free = agent.engine.together(identify, lambda: gives_room_back(agent, event))
        check_protected(event, keys)
        if is_free:
            return agent.events.save(event, payment=ROOM)
    outcome = _draw_unseen(agent, event, charge, identify)
    if outcome is not None:
        return outcome
    keys, purse = agent.engine.together(identify, lambda: agent.purses.get(event.pubkey))
    check_protected(event, keys)
    agent.part(SeenPurses).note(purse.key, purse.drawable)
    for payer in _payers(agent, event, charge.price, keys, purse):
        try:
            return _draw(agent, event, charge, payer)
        except PaymentRefused:
            continue  # the purse was emptied meanwhile, or the event was stored
    if event.keeping is not Keeping.EPHEMERAL and agent.events.get(event.id) is not None:
        return Outcome.DUPLICATE
    if keys and purse.key not in keys:
        purse = agent.purses.get(keys[0])
    raise _refusal(agent.settings, charge.price, purse, is_logged_in=bool(keys))


def _draw_unseen(agent: Agent, event: Event, charge: Charge, identify: Identify) -> Outcome | None:
    """Draw from the author's purse without reading it first, if this process remembers that it had
    enough. None if it does not remember that, or if the draw fails."""
    seen = agent.part(SeenPurses)
    if not seen.has(event.pubkey, charge.price) or event.pubkey not in identify():
        return None
    try:
        return _draw(agent, event, charge, event.pubkey)
    except PaymentRefused:
        seen.forget(event.pubkey)
        return None


def _payers(
    agent: Agent, event: Event, price: int, keys: Sequence[str], author: Purse
) -> Iterator[str]:
    """The keys whose purses have enough: the author first, if authenticated, then the sender's
    other keys."""
    if author.key in keys and author.drawable >= price:
        yield author.key
    others = [key for key in keys if key != author.key]
    if others and not event.is_protected:
        purses = agent.purses.get_many(others)
        yield from (key for key in others if purses[key].drawable >= price)


def _draw(agent: Agent, event: Event, charge: Charge, payer: str) -> Outcome:
    """Store event, draw and receipt in one transaction. Returns when it is durable."""
    stored = Stored(event.id, event.kind, charge.size, event.expiration)
    movement = Movement(
        MovementKind.DRAWN, Way.EVENT, charge.price, agent.now_ms, event.id, stored._asdict()
    )
    payment = agent.purses.draw(payer, movement)
    agent.part(SeenPurses).spend(payer, charge.price)
    if event.keeping is Keeping.EPHEMERAL:
        outcome = _pass_on(agent, event, payment)
    else:
        outcome = agent.events.save(event, payment=payment)
    if outcome is Outcome.STORED:
        agent.meter.count(Metric.REVENUE, charge.price)
        agent.meter.count(Metric.PRICE, charge.price)
    return outcome


def _pass_on(agent: Agent, event: Event, payment: Payment) -> Outcome:
    """An ephemeral event is paid for once and sent out once. Its id is stored for as long as the
    event could be sent again, so that a repeat is recognised."""
    longest = agent.settings.ephemeral_past
    if event.created_at < agent.now - longest:
        raise Refused(Prefix.INVALID, f"an ephemeral event is at most {longest} seconds old")
    once = drawn_once(event.id, until=event.created_at + longest + 1)
    try:
        agent.engine.transact([once, *payment.writes])
    except TransactionCancelled as cancelled:
        if cancelled.failed[0]:
            return Outcome.DUPLICATE
        raise PaymentRefused(cancelled.failed[1:], cancelled.current[1:]) from None
    try:
        fan_out(agent, [event])
    except Exception:  # too late to refuse the payment
        log.exception("an ephemeral event did not reach every subscriber")
        agent.meter.count(Metric.INTERNAL_ERRORS)
    return Outcome.STORED


def _refusal(settings: Settings, price: int, purse: Purse, *, is_logged_in: bool) -> PaymentNeeded:
    """The refusal if no purse has paid, with advice. `purse` is the purse that has to be filled."""
    costs = f"this costs {price} ({settings.tariff.unit}, {readable_price(settings, price)})"
    if purse.is_frozen:
        return PaymentNeeded(Prefix.RESTRICTED, f"{costs}; your purse is frozen by the operator")
    if not is_logged_in and purse.drawable >= price:
        return PaymentNeeded(Prefix.AUTH_REQUIRED, f"{costs}; log in to pay it from your purse")
    page = settings.purse_url(purse.key)
    return PaymentNeeded(Prefix.RESTRICTED, f"{costs}; fill your purse at {page}")


def readable_price(settings: Settings, price: int) -> str:
    return readable(price, settings.asset_code, settings.asset_scale)


class SeenPurses:
    """The balances of purses at this process's last read, less its own draws since then.

    If a remembered balance suffices, the purse is not read again for the next event. The balance
    may be wrong, because other processes draw too. Then the draw's own condition fails, and the
    purse is read.
    """

    def __init__(self, _agent: Agent) -> None:
        self._left: dict[str, int] = {}

    def note(self, key: str, left: int) -> None:
        if len(self._left) >= _MOST_SEEN:
            self._left = {}  # each purse is then read once more
        self._left[key] = left

    def spend(self, key: str, amount: int) -> None:
        if key in self._left:
            self._left[key] -= amount

    def forget(self, key: str) -> None:
        self._left.pop(key, None)

    def has(self, key: str, amount: int) -> bool:
        return self._left.get(key, 0) >= amount
