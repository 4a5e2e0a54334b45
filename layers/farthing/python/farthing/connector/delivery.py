"""Steps of a packet that is addressed to us: what it buys is made and paid in one transaction.

So there is nothing bought without its payment and no payment for nothing, whatever breaks in
between, and no hold that somebody would have to release. What may be bought is the receivers'
(see `connector.purchase`).
"""

from farthing.connector import receivers
from farthing.connector.incoming import IncomingPacket
from farthing.connector.limits import max_balance
from farthing.connector.rate import check_count, count_shared
from farthing.context import Agent
from farthing.ilp.packet import Fulfill
from farthing.ilp.reject import (
    InsufficientLiquidity,
    Rejected,
    TimedOut,
    UnexpectedPayment,
    WrongCondition,
)
from farthing.ports.meter import Metric
from farthing.store.payment import PaymentRefused
from farthing.store.receipts import Receipt


def choose_receiver(agent: Agent, packet: IncomingPacket) -> None:
    for receiver in receivers.RECEIVERS:
        if receiver.recognises(agent, packet.prepare):
            packet.purchase = receiver.read(agent, packet)
            return
    raise UnexpectedPayment("nobody here takes such a packet")


def check_purchase(agent: Agent, packet: IncomingPacket) -> Fulfill | None:
    """What would be refused by now may have been bought already: the event has expired since, its
    price has risen, its author is blocked. Only then is the receipt looked up, and only for
    packets with a condition that we can fulfil, so that no other packet costs more."""
    try:
        packet.purchase.check()
    except Rejected:
        found = packet.purchase.find_fulfillment()
        if found is None or not packet.purchase.was_committed(_receipt(agent, packet, *found)):
            raise
        packet.purchase.after_repeat()
        return Fulfill(found[1], packet.purchase.answer())
    return None


def check_condition(agent: Agent, packet: IncomingPacket) -> None:
    found = packet.purchase.find_fulfillment()
    if found is None:
        raise WrongCondition("the condition was made by no scheme that we know")
    packet.fulfillment = found[1]
    packet.receipt = _receipt(agent, packet, *found)


def _receipt(agent: Agent, packet: IncomingPacket, scheme: str, fulfillment: bytes) -> Receipt:
    return Receipt(
        peer=packet.peer.id,
        condition=packet.prepare.condition.hex(),
        fulfillment=fulfillment.hex(),
        scheme=scheme,
        amount=packet.prepare.amount,
        price=packet.purchase.price,
        time=agent.now,
        purpose=packet.purchase.purpose,
    )


def check_ledger(agent: Agent, packet: IncomingPacket) -> None:
    """Look, before anything is written, at what would refuse the payment."""
    receipt = packet.receipt
    packets, balance, *found = agent.engine.together(
        lambda: count_shared(agent, packet),
        lambda: agent.ledger.balance(packet.peer.id),
        *packet.purchase.reads(receipt),
    )
    check_count(agent, packets)
    packet.is_repeat = packet.purchase.is_repeat(receipt, found)
    if packet.is_repeat or not receipt.amount:
        return
    if balance.owed + receipt.amount > max_balance(agent, packet.peer):
        raise InsufficientLiquidity("the balance limit is reached")


def commit_purchase(agent: Agent, packet: IncomingPacket) -> None:
    """Returns when the purchase, its payment and its receipt are durable."""
    if packet.is_repeat:
        return
    if packet.milliseconds_left(agent.now_ms) <= 0:
        raise TimedOut("the packet has expired")
    try:
        _commit(agent, packet)
    except Exception:
        # Paid all the same if an answer was lost after the commit, or a repeat has overtaken us.
        if not packet.purchase.was_committed(packet.receipt):
            raise
        packet.is_repeat = True


def _commit(agent: Agent, packet: IncomingPacket) -> None:
    try:
        limit = max_balance(agent, packet.peer)
        packet.purchase.commit(agent.ledger.payment(packet.receipt, limit))
    except PaymentRefused:
        raise InsufficientLiquidity("the balance limit is reached") from None


def fulfil(agent: Agent, packet: IncomingPacket) -> Fulfill:
    if packet.is_repeat:
        packet.purchase.after_repeat()
    else:
        packet.purchase.after_commit()
        if packet.purchase.is_revenue:
            agent.meter.count(Metric.REVENUE, packet.receipt.amount)
            agent.meter.count(Metric.PRICE, packet.receipt.price)
    return Fulfill(packet.fulfillment, packet.purchase.answer())
