"""Steps of a packet that is addressed to us: one transaction makes the purchase and its payment.

So there is never a purchase without a payment nor a payment without a purchase, even after a crash,
and no hold has to be released. Receivers define the purchases (see `connector.purchase`).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from farthing.connector import receivers
from farthing.connector.incoming import IncomingPacket
from farthing.connector.known_peers import max_balance
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
    receiver = receivers.choose(agent, packet.prepare)
    if receiver is None:
        raise UnexpectedPayment("no receiver takes a packet with this address and data")
    packet.purchase = receiver.read(agent, packet)


def check_purchase(_agent: Agent, packet: IncomingPacket) -> Fulfill | None:
    """A repeated packet may be refused now although its purchase was made: meanwhile the event has
    expired, the price has risen or the author is blocked. Only after such a refusal is the receipt
    read, and only for a condition that we can fulfil, so other packets cost no extra read."""
    try:
        packet.purchase.check()
    except Rejected:
        fulfillment = _fulfillment_of_repeat(packet)
        if fulfillment is None:
            raise
        packet.purchase.after_repeat()
        return Fulfill(fulfillment, packet.purchase.answer())
    return None


def _fulfillment_of_repeat(packet: IncomingPacket) -> bytes | None:
    """The fulfillment of a packet whose purchase was made before, else None."""
    try:
        found = packet.purchase.find_fulfillment()
    except Rejected:
        return None
    if found is None or not packet.purchase.was_committed(_receipt(packet, *found)):
        return None
    return found[1]


def check_condition(_agent: Agent, packet: IncomingPacket) -> None:
    found = packet.purchase.find_fulfillment()
    if found is None:
        raise WrongCondition("expected a condition of a known scheme")
    packet.fulfillment = found[1]
    packet.receipt = _receipt(packet, *found)


def _receipt(packet: IncomingPacket, scheme: str, fulfillment: bytes) -> Receipt:
    return Receipt(
        peer=packet.peer.id,
        condition=packet.prepare.condition.hex(),
        fulfillment=fulfillment.hex(),
        scheme=scheme,
        amount=packet.prepare.amount,
        price=packet.purchase.price,
        time=packet.arrived_ms // 1000,
        purpose=packet.purchase.purpose,
    )


def check_ledger(agent: Agent, packet: IncomingPacket) -> None:
    """Check the balance, the rate and earlier purchases before anything is written."""
    receipt = packet.receipt
    packet.max_balance = max_balance(agent, packet.peer)
    looks: list[Callable[[], Any]] = [
        partial(agent.ledger.balance, packet.peer.id), *packet.purchase.reads(receipt)
    ]  # fmt: skip
    if agent.alone:
        balance, *found = agent.engine.together(*looks)
    else:
        packets, balance, *found = agent.engine.together(
            partial(count_shared, agent, packet), *looks
        )
        check_count(agent, packets)
    packet.is_repeat = packet.purchase.is_repeat(receipt, found)
    if packet.is_repeat or not receipt.amount:
        return
    if balance.owed + receipt.amount > packet.max_balance:
        raise InsufficientLiquidity("the balance limit is reached")


def commit_purchase(agent: Agent, packet: IncomingPacket) -> None:
    """Returns when the purchase, its payment and its receipt are durable."""
    if packet.is_repeat:
        return
    if packet.expires_ms <= agent.now_ms:
        raise TimedOut("the packet has expired")
    try:
        _commit(agent, packet)
    except Exception:
        # The purchase is paid after all if the store's answer was lost, or if a repeat was faster.
        if not packet.purchase.was_committed(packet.receipt):
            raise
        packet.is_repeat = True


def _commit(agent: Agent, packet: IncomingPacket) -> None:
    try:
        payment = agent.ledger.payment(packet.receipt, packet.max_balance)
        packet.purchase.commit(payment)
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
