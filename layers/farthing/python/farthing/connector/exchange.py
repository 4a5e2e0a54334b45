"""One exchange of ILP over HTTP (RFC 0035): a Prepare goes to a connector, and its reply comes back
checked. Forwarding and our own payments both go this way."""

from hashlib import sha256
from http.client import OK

from farthing.ilp.packet import Fulfill, InvalidPacket, Prepare, Reject, decode_reply, encode
from farthing.ports.outbound import Outbound

OCTETS = "application/octet-stream"


class PaymentFailed(Exception):
    """The answer is not an ILP packet. It is unknown whether the Prepare arrived."""


class RefusedByHttp(PaymentFailed):
    """The connector answered with an HTTP status instead of a packet."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the connector answered HTTP {status}")
        self.status = status


class ForgedFulfillment(PaymentFailed):
    """The reply is a Fulfill whose fulfillment does not hash to the condition."""


def exchange(
    outbound: Outbound, endpoint: str, token: str, prepare: Prepare, seconds: float
) -> Fulfill | Reject:
    """The reply to a packet. Raises OutboundFailed if no answer comes in time, and PaymentFailed if
    the answer is not a reply to this packet."""
    headers = {"Content-Type": OCTETS, "Accept": OCTETS, "Authorization": f"Bearer {token}"}
    response = outbound.post(endpoint, headers, encode(prepare), seconds)
    if response.status != OK:
        raise RefusedByHttp(response.status)
    try:
        reply = decode_reply(response.body)
    except InvalidPacket as error:
        raise PaymentFailed(f"expected an ILP packet as the answer: {error}") from None
    if isinstance(reply, Fulfill) and sha256(reply.fulfillment).digest() != prepare.condition:
        raise ForgedFulfillment("the fulfillment does not hash to the condition")
    return reply
