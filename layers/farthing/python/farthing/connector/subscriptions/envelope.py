"""The receiver of BTP-NIPs envelopes: reads a message, and hands it to whoever acts on it."""

from farthing.btp_nips.codec import decode, is_envelope
from farthing.btp_nips.messages import Close, Count, EventMessage, Req
from farthing.connector.incoming import IncomingPacket
from farthing.connector.purchase import Purchase, Receiver
from farthing.connector.subscriptions.close import CloseMessage
from farthing.connector.subscriptions.count import CountMessage
from farthing.connector.subscriptions.incoming_delivery import IncomingDelivery, awaited
from farthing.connector.subscriptions.publish import PublishMessage
from farthing.connector.subscriptions.req import ReqMessage
from farthing.context import Agent
from farthing.ilp.packet import Prepare


def recognises(_agent: Agent, prepare: Prepare) -> bool:
    return is_envelope(prepare.data)


def read(agent: Agent, packet: IncomingPacket) -> Purchase:
    message = decode(packet.prepare.data)
    match message:
        case Req():
            return ReqMessage.of(agent, packet, message)
        case Close():
            return CloseMessage.of(agent, packet, message)
        case Count():
            return CountMessage.of(agent, packet, message)
        case EventMessage() if awaited(agent, message) is None:
            return PublishMessage.of(agent, packet, message)
    return IncomingDelivery.of(agent, packet, message)


ENVELOPES = Receiver("BTP-NIPs envelope", recognises, read)
