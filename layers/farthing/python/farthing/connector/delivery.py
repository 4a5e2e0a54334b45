"""A packet for us: its data is an event, its amount pays for it, its fulfillment says it is stored.

The event, the payment and the receipt are committed in one transaction. So there is no event
without its payment and no payment without its event, whatever breaks in between, and no hold that
somebody would have to release.
"""

import logging

import orjson

from farthing.connector.incoming import IncomingPacket
from farthing.connector.rate import check_rate, count_packet
from farthing.context import Agent
from farthing.ilp.condition import Scheme, find_fulfillment
from farthing.ilp.packet import Fulfill
from farthing.ilp.reject import (
    BadRequest,
    InsufficientLiquidity,
    PriceNotMet,
    RefusedByReceiver,
    Rejected,
    TimedOut,
    UnexpectedPayment,
    WrongCondition,
)
from farthing.ilp.toon import InvalidToon, loads
from farthing.nostr.events import Event, InvalidEvent, parse_event, verify
from farthing.nostr.kinds import Keeping, Kind
from farthing.nostr.messages import Refused
from farthing.ports.meter import Metric
from farthing.relay.fan_out import fan_out
from farthing.relay.policies import check_policies
from farthing.relay.price import writes_free
from farthing.store.events import Outcome
from farthing.store.ledger import Receipt
from farthing.store.payment import Payment, PaymentRefused, raise_if_refused
from farthing.store.table import TransactionCancelled

log = logging.getLogger("farthing")


def deliver(agent: Agent, incoming: IncomingPacket) -> Fulfill:
    event = read_event(incoming.prepare.data)
    try:
        check_event(agent, event)
        price = check_price(agent, incoming, event)
    except Rejected:
        repeated = fulfilled_before(agent, incoming, event)
        if repeated is None:
            raise
        return repeated
    scheme, fulfillment = check_condition(agent, incoming, event)
    receipt = Receipt(
        peer=incoming.peer.id,
        condition=incoming.prepare.condition.hex(),
        event_id=event.id,
        amount=incoming.prepare.amount,
        price=price,
        time=agent.now,
        fulfillment=fulfillment.hex(),
        kind=event.kind,
        size=len(incoming.prepare.data),
        scheme=scheme,
        event_expires=event.expiration,
    )
    if check_ledger(agent, incoming, event, receipt):
        complete(agent, event)
    else:
        store_paid(agent, incoming, event, receipt)
    return Fulfill(fulfillment)


def read_event(data: bytes) -> Event:
    try:
        fields = loads(data)
    except InvalidToon as error:
        raise UnexpectedPayment(f"the data is no event: {error}") from None
    try:
        event = parse_event(fields)
        verify(event)
    except InvalidEvent as error:
        raise BadRequest(str(error)) from None
    return event


def check_event(agent: Agent, event: Event) -> None:
    try:
        check_policies(agent, event)
    except Refused as refused:
        raise RefusedByReceiver(str(refused)) from None
    if event.is_protected:
        raise RefusedByReceiver("a protected event takes its author's own connection (NIP-70)")


def check_price(agent: Agent, incoming: IncomingPacket, event: Event) -> int:
    """What the event costs. It counts the bytes that arrived."""
    settings, amount = agent.settings, incoming.prepare.amount
    if writes_free(settings, event.pubkey):
        return 0
    price = settings.tariff.price(event.kind, len(incoming.prepare.data))
    if amount < price:
        details = {
            "price": str(price),
            "received": str(amount),
            "asset_code": settings.asset_code,
            "asset_scale": settings.asset_scale,
        }
        raise PriceNotMet(f"storing this event costs {price}", orjson.dumps(details))
    return price


def fulfilled_before(agent: Agent, incoming: IncomingPacket, event: Event) -> Fulfill | None:
    """The answer that a packet had when it was taken, though it would be refused by now: the event
    has expired since, its price has risen, its author is blocked. Asked only where something is
    about to be refused, and only for who knows how to pay, so that no other packet costs more."""
    found = _fulfillment_of(agent, incoming, event)
    if found is None:
        return None
    condition = incoming.prepare.condition.hex()
    if agent.ledger.receipt(incoming.peer.id, condition, event.id) is None:
        return None
    if agent.events.was_here(event.id):  # what has gone since is not stored once more
        complete(agent, event)
    return Fulfill(found[1])


def check_condition(agent: Agent, incoming: IncomingPacket, event: Event) -> tuple[Scheme, bytes]:
    found = _fulfillment_of(agent, incoming, event)
    if found is None:
        raise WrongCondition("the condition was made by no scheme that we know")
    return found


def _fulfillment_of(
    agent: Agent, incoming: IncomingPacket, event: Event
) -> tuple[Scheme, bytes] | None:
    return find_fulfillment(
        incoming.prepare.condition,
        relay_secret=bytes.fromhex(agent.settings.secret_key),
        data=incoming.prepare.data,
        author=bytes.fromhex(event.pubkey),
        event_id=bytes.fromhex(event.id),
    )


def check_ledger(agent: Agent, incoming: IncomingPacket, event: Event, receipt: Receipt) -> bool:
    """Look, before anything is written, at what would refuse the payment. True for a packet that
    was fulfilled before, which is fulfilled again and paid once."""
    packets, balance, stored, known = agent.engine.together(
        lambda: count_packet(agent, incoming),
        lambda: agent.ledger.balance(incoming.peer.id),
        lambda: agent.events.get(event.id),
        lambda: _receipt_of_what_goes(agent, event, receipt),
    )
    check_rate(agent, packets)
    # The event tells as well: a repeat may be stored between the looks at receipt and event.
    if known is not None or (stored is not None and stored.payment == receipt.reference):
        return True
    if stored is not None:
        raise RefusedByReceiver("the event is stored already")
    if receipt.amount and balance.owed + receipt.amount > max_balance(agent, incoming):
        raise InsufficientLiquidity("the balance limit is reached")
    return False


def _receipt_of_what_goes(agent: Agent, event: Event, receipt: Receipt) -> Receipt | None:
    """An event that stays tells by itself that it was paid for. One that is replaced or was never
    kept leaves only its receipt."""
    if event.keeping is Keeping.REGULAR:
        return None
    return agent.ledger.receipt(receipt.peer, receipt.condition, receipt.event_id)


def max_balance(agent: Agent, incoming: IncomingPacket) -> int:
    return incoming.peer.max_balance or agent.settings.max_balance


def store_paid(agent: Agent, incoming: IncomingPacket, event: Event, receipt: Receipt) -> None:
    """Returns when event, payment and receipt are durable."""
    if incoming.milliseconds_left(agent.now_ms) <= 0:
        raise TimedOut("the packet has expired")
    try:
        _commit(agent, event, receipt, max_balance(agent, incoming))
    except Exception:
        # Paid all the same if an answer was lost after the commit, or a repeat has overtaken us.
        if agent.ledger.receipt(receipt.peer, receipt.condition, event.id) is None:
            raise
        complete(agent, event)
        return
    agent.meter.count(Metric.EVENTS_STORED)
    agent.meter.count(Metric.REVENUE, receipt.amount)
    agent.meter.count(Metric.PRICE, receipt.price)


def complete(agent: Agent, event: Event) -> None:
    """Finish what an attempt may have left undone after its commit: what a kind 5 deletes."""
    if event.kind == Kind.DELETION:
        agent.events.save(event)


def _commit(agent: Agent, event: Event, receipt: Receipt, most: int) -> None:
    try:
        payment = agent.ledger.payment(receipt, most)
        if event.keeping is Keeping.EPHEMERAL:
            _pay(agent, payment)
            _pass_on(agent, event)
        else:
            _check_outcome(agent.events.save(event, payment=payment))
    except PaymentRefused:
        raise InsufficientLiquidity("the balance limit is reached") from None


def _pass_on(agent: Agent, event: Event) -> None:
    """An ephemeral event is paid for once and goes out once, to whom it reaches: trouble with that
    comes too late to refuse the payment."""
    try:
        fan_out(agent, [event])
    except Exception:
        log.exception("an ephemeral event did not reach everyone")
        agent.meter.count(Metric.INTERNAL_ERRORS)


def _pay(agent: Agent, payment: Payment) -> None:
    try:
        agent.engine.transact(payment.writes)
    except TransactionCancelled as cancelled:
        raise_if_refused(cancelled, 0)
        raise


def _check_outcome(outcome: Outcome) -> None:
    match outcome:
        case Outcome.DUPLICATE:
            raise RefusedByReceiver("the event is stored already")
        case Outcome.SUPERSEDED:
            raise RefusedByReceiver("a newer version is stored")
        case Outcome.DELETED:
            raise RefusedByReceiver("its author has deleted this event")
