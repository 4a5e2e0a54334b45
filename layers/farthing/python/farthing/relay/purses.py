"""Events that are paid from a purse: who pays, and how event, draw and receipt become one.

Only a key that has proved who it is pays: anybody can send somebody else's events once more.
"""

import logging
from collections.abc import Callable, Iterator, Sequence

from farthing.context import Agent
from farthing.ilp.money import readable
from farthing.nostr.events import Event
from farthing.nostr.kinds import Keeping
from farthing.nostr.messages import Prefix, Refused
from farthing.nostr.nip19 import Npub, encode
from farthing.ports.meter import Metric
from farthing.relay.fan_out import fan_out
from farthing.relay.price import Charge
from farthing.relay.room import gives_room_back, may_give_room_back
from farthing.relay.seen_purses import seen_purses
from farthing.settings import Settings
from farthing.store.events import Outcome
from farthing.store.payment import ROOM, Payment, PaymentRefused
from farthing.store.purses import Movement, MovementKind, Purse, Way, drawn_once
from farthing.store.receipts import Stored
from farthing.store.table import TransactionCancelled

log = logging.getLogger("farthing")

# The keys that whoever sends the event has proved to hold, in the order in which they did.
Identify = Callable[[], Sequence[str]]


class PaymentNeeded(Refused):
    """Nobody's purse has paid for an event."""


def page_of(settings: Settings, pubkey: str) -> str:
    """Where a person learns how to fill a purse."""
    return f"{settings.purses_url}/{encode(Npub(pubkey))}"


def check_protected(event: Event, keys: Sequence[str]) -> None:
    if event.is_protected and event.pubkey not in keys:
        raise Refused(Prefix.AUTH_REQUIRED, "only its author may publish this event (NIP-70)")


def store_priced(agent: Agent, event: Event, charge: Charge, identify: Identify) -> Outcome:
    """Store an event that has passed the policies, paid from the purse of one who sends it. Refused
    where nobody's purse can pay."""
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
    seen_purses(agent).note(purse.key, purse.drawable)
    for payer in _payers(agent, event, charge.price, keys, purse):
        try:
            return _draw(agent, event, charge, payer)
        except PaymentRefused:
            continue  # the purse was emptied meanwhile, or the event was stored
    if event.keeping is not Keeping.EPHEMERAL and agent.events.get(event.id) is not None:
        return Outcome.DUPLICATE
    raise _refusal(agent.settings, charge.price, keys, purse)


def _draw_unseen(agent: Agent, event: Event, charge: Charge, identify: Identify) -> Outcome | None:
    """Draw from the author's purse without a look at it, where this process knows that it had
    enough. None where it does not, or is wrong."""
    seen = seen_purses(agent)
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
    """Whose purses have enough: the author's, if the author is here, then those of the others."""
    if author.key in keys and author.drawable >= price:
        yield author.key
    others = [key for key in keys if key != author.key]
    if others and not event.is_protected:
        purses = agent.purses.get_many(others)
        yield from (key for key in others if purses[key].drawable >= price)


def _draw(agent: Agent, event: Event, charge: Charge, payer: str) -> Outcome:
    """Returns when event, draw and receipt are durable, all three."""
    stored = Stored(event.id, event.kind, charge.size, event.expiration)
    movement = Movement(
        MovementKind.DRAWN, Way.EVENT, charge.price, agent.now_ms, event.id, stored._asdict()
    )
    payment = agent.purses.draw(payer, movement)
    seen_purses(agent).spend(payer, charge.price)
    if event.keeping is Keeping.EPHEMERAL:
        outcome = _pass_on(agent, event, payment)
    else:
        outcome = agent.events.save(event, payment=payment)
    if outcome is Outcome.STORED:
        agent.meter.count(Metric.REVENUE, charge.price)
        agent.meter.count(Metric.PRICE, charge.price)
    return outcome


def _pass_on(agent: Agent, event: Event, payment: Payment) -> Outcome:
    """An ephemeral event is paid for once and sent out once. It leaves its id, by which a second
    one is known."""
    once = drawn_once(event.id)
    try:
        agent.engine.transact([once, *payment.writes])
    except TransactionCancelled as cancelled:
        if cancelled.failed[0]:
            return Outcome.DUPLICATE
        raise PaymentRefused(cancelled.failed[1:], cancelled.current[1:]) from None
    try:
        fan_out(agent, [event])
    except Exception:  # too late to refuse the payment
        log.exception("an ephemeral event did not reach everyone")
        agent.meter.count(Metric.INTERNAL_ERRORS)
    return Outcome.STORED


def _refusal(settings: Settings, price: int, keys: Sequence[str], author: Purse) -> PaymentNeeded:
    costs = f"{price} ({settings.tariff.unit}, {readable_price(settings, price)})"
    if not keys and author.drawable >= price:
        return PaymentNeeded(
            Prefix.AUTH_REQUIRED, f"this costs {costs}; log in to pay it from your purse"
        )
    page = page_of(settings, keys[0] if keys else author.key)
    return PaymentNeeded(Prefix.RESTRICTED, f"this costs {costs}; fill your purse at {page}")


def readable_price(settings: Settings, price: int) -> str:
    return readable(price, settings.asset_code, settings.asset_scale)
