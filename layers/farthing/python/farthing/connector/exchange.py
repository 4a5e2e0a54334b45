"""One exchange of ILP over HTTP (RFC 0035): a Prepare goes to a connector, and its reply comes back
checked. Forwarding and our own payments both go this way."""

from hashlib import sha256
from http.client import OK

from farthing.ilp.packet import Fulfill, InvalidPacket, Prepare, Reject, decode_reply, encode
from farthing.ports.outbound import Outbound

OCTETS = "application/octet-stream"


class PaymentFailed(Exception):
    """The packet was not answered by a packet; whether it arrived is unknown."""


class RefusedByHttp(PaymentFailed):
    """The connector answered with an HTTP status instead of a packet."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the connector answered HTTP {status}")
        self.status = status


class ForgedFulfillment(PaymentFailed):
    """The reply claims success with a preimage that is not the condition's."""


def exchange(
    outbound: Outbound, endpoint: str, token: str, prepare: Prepare, seconds: float
) -> Fulfill | Reject:
    """The reply to a packet. OutboundFailed where there is none in time, PaymentFailed where the
    answer is no reply to it."""
    headers = {"Content-Type": OCTETS, "Accept": OCTETS, "Authorization": f"Bearer {token}"}
    response = outbound.post(endpoint, headers, encode(prepare), seconds)
    if response.status != OK:
        raise RefusedByHttp(response.status)
    try:
        reply = decode_reply(response.body)
    except InvalidPacket as error:
        raise PaymentFailed(f"the connector answered no packet: {error}") from None
    if isinstance(reply, Fulfill) and sha256(reply.fulfillment).digest() != prepare.condition:
        raise ForgedFulfillment("the fulfillment does not hash to the condition")
    return reply
