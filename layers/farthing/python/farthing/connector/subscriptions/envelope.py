"""The receiver of BTP-NIPs envelopes: reads the message, and passes it to the class that handles
it."""

from farthing.btp_nips.codec import decode
from farthing.btp_nips.messages import Close, Count, EventMessage, Req
from farthing.connector.incoming import IncomingPacket
from farthing.connector.purchase import Purchase
from farthing.connector.subscriptions.close import CloseMessage
from farthing.connector.subscriptions.count import CountMessage
from farthing.connector.subscriptions.incoming_delivery import (
    IncomingDelivery,
    awaited,
    is_a_delivery,
)
from farthing.connector.subscriptions.publish import PublishMessage
from farthing.connector.subscriptions.req import ReqMessage
from farthing.context import Agent


def read_envelope(agent: Agent, packet: IncomingPacket) -> Purchase:
    message = decode(packet.prepare.data)
    match message:
        case Req():
            return ReqMessage.of(agent, packet, message)
        case Close():
            return CloseMessage.of(agent, packet, message)
        case Count():
            return CountMessage.of(agent, packet, message)
        case EventMessage() if awaited(agent, message) is None and not is_a_delivery(
            agent, packet.prepare, message
        ):
            return PublishMessage.of(agent, packet, message)
    return IncomingDelivery.of(agent, packet, message)
