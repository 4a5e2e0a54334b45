"""Packets that fill a purse: plain packets, and STREAM packets from wallets.

An address under `.purse.` names the purse. If a token follows the key in the address, the packet
belongs to a STREAM connection. The connection's secret is computed from the address and the relay's
key, so any container can answer any packet.
"""

from collections.abc import Callable, Sequence
from typing import Any, Self

from farthing.connector.incoming import IncomingPacket
from farthing.connector.purchase import Purchase
from farthing.context import Agent
from farthing.ilp.condition import Scheme
from farthing.ilp.packet import Reject
from farthing.ilp.purse import (
    InvalidPurseData,
    NotAPurse,
    PurseAddress,
    check_data,
    find_purse_fulfillment,
    parse_purse_address,
)
from farthing.ilp.reject import (
    InvalidAmount,
    RefusedByReceiver,
    Rejected,
    RejectedAs,
    UnexpectedPayment,
    Unreachable,
)
from farthing.ilp.spsp import connection_secret
from farthing.ilp.stream_receiver import Asset, StreamPayment, receive
from farthing.store.payment import Payment
from farthing.store.purses import Movement, MovementKind, Purse, Way
from farthing.store.receipts import PurseFilled, Receipt
from farthing.store.table import Item, TransactWrite

FROZEN = "this purse is frozen"
_PAID_BEFORE = "the same data has paid another amount into this purse: take new data"


def read_purse_packet(agent: Agent, packet: IncomingPacket) -> "PurseFill":
    own = agent.settings.own_ilp_address
    try:
        address = parse_purse_address(own, packet.prepare.destination)
    except NotAPurse as error:
        raise Unreachable(str(error)) from None
    kind = PlainFill if address.token is None else StreamFill
    return kind.to(address, agent, packet)


class PurseFill(Purchase):
    """An amount for a purse. It becomes revenue when it is drawn, not now."""

    is_revenue = False
    way: Way
    address: PurseAddress
    purse: Purse  # as read when the ledger was checked
    reference: str

    @classmethod
    def to(cls, address: PurseAddress, agent: Agent, packet: IncomingPacket) -> Self:
        fill = cls(agent, packet)
        fill.address = address
        return fill

    @property
    def key(self) -> str:
        return self.address.key.hex()

    @property
    def purpose(self) -> PurseFilled:
        return PurseFilled(self.key, len(self.prepare.data))

    def reads(self, receipt: Receipt) -> Sequence[Callable[[], Any]]:
        self.reference = receipt.reference
        return (*super().reads(receipt), lambda: self.agent.purses.get(self.key))

    def is_repeat(self, receipt: Receipt, found: Sequence[Any]) -> bool:
        if super().is_repeat(receipt, found):
            return True
        self.purse = found[1]
        if self.purse.is_frozen:
            raise self.declined(FROZEN)
        return False

    def paid_before(self) -> Rejected:
        return self.declined(_PAID_BEFORE)

    def writes(self) -> Sequence[TransactWrite]:
        movement = Movement(
            MovementKind.FILLED,
            self.way,
            self.prepare.amount,
            self.agent.now_ms,
            self.reference,
        )
        return self.agent.purses.fill(self.purse, movement)

    def refusal(self, current: Sequence[Item | None]) -> Rejected:
        return self.declined(FROZEN)

    def declined(self, why: str) -> Rejected:
        return RefusedByReceiver(why)


class PlainFill(PurseFill):
    way = Way.PACKET

    @classmethod
    def to(cls, address: PurseAddress, agent: Agent, packet: IncomingPacket) -> Self:
        if packet.prepare.amount == 0:
            raise InvalidAmount("expected an amount to put into the purse, got 0")
        try:
            check_data(packet.prepare.data)
        except InvalidPurseData as error:
            raise UnexpectedPayment(str(error)) from None
        return super().to(address, agent, packet)

    def find_fulfillment(self) -> tuple[Scheme, bytes] | None:
        return find_purse_fulfillment(
            self.prepare.condition,
            relay_secret=self.agent.settings.secret,
            key=self.address.key,
            data=self.prepare.data,
        )


class StreamFill(PurseFill):
    way = Way.STREAM
    payment: StreamPayment

    @classmethod
    def to(cls, address: PurseAddress, agent: Agent, packet: IncomingPacket) -> Self:
        fill = super().to(address, agent, packet)
        settings = agent.settings
        assert address.token is not None
        decision = receive(
            packet.prepare,
            secret=connection_secret(settings.secret, address.key, address.token),
            address=settings.own_ilp_address,
            asset=Asset(settings.asset_code, settings.asset_scale),
        )
        if isinstance(decision, Reject):
            raise RejectedAs(decision)
        fill.payment = decision
        return fill

    def find_fulfillment(self) -> tuple[Scheme, bytes] | None:
        return Scheme.STREAM, self.payment.fulfillment

    def commit(self, payment: Payment) -> None:
        if self.payment.amount:  # a packet of amount 0 only asks, and leaves no record
            super().commit(payment)

    def declined(self, why: str) -> Rejected:
        return RejectedAs(self.payment.decline(why))

    def answer(self) -> bytes:
        return self.payment.fulfill().data
