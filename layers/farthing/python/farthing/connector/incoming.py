"""A packet on its way through the connector, with the findings of the steps so far."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from farthing.ilp.packet import Fulfill, Prepare
from farthing.store.ledger import Hold, Peer
from farthing.store.receipts import Receipt

if TYPE_CHECKING:
    from farthing.connector.purchase import Purchase


@dataclass(slots=True)
class IncomingPacket:
    """Fields without a default are set by the step that is named beside them."""

    peer: Peer
    octets: bytes
    arrived_ms: int
    request_id: str = ""
    claimed_request: bool = False  # claim_request: the reply is kept under the Request-Id
    repeats_request: bool = False  # claim_request: another request with this id had no reply yet
    answered_before: bool = False  # claim_request: a repeat was counted at its first arrival

    prepare: Prepare = field(init=False)  # decode
    expires_ms: int = field(init=False)  # decode

    # For us
    purchase: "Purchase" = field(init=False)  # choose_receiver
    fulfillment: bytes = field(init=False)  # check_condition
    max_balance: int = field(init=False)  # check_ledger: what the peer may owe us
    receipt: Receipt = field(init=False)  # check_condition
    is_repeat: bool = False  # check_ledger: this payment has made this purchase before

    # Onward
    digest: str = field(init=False)  # answer_repeat
    next_hop: Peer = field(init=False)  # choose_next_hop
    onward: Prepare = field(init=False)  # make_onward_packet
    hold: Hold = field(init=False)  # hold_amount
    fulfill: Fulfill = field(init=False)  # send_onward
