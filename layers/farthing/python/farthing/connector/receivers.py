"""The receivers of packets for us. The first receiver that recognises a packet handles it.

`connector.purchase` explains how to write a receiver.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from farthing.btp_nips.errors import in_our_form
from farthing.connector.incoming import IncomingPacket
from farthing.connector.purchase import Purchase, Receiver
from farthing.connector.toon_event import ToonEvent
from farthing.context import Agent
from farthing.ilp.address import is_prefix
from farthing.ilp.packet import Code, Prepare, decode_prepare
from farthing.ilp.purse import PURSE_SEGMENT

AETHER_START: Final = b"event_id:"
# Data that starts with one of these is meant as an envelope, perhaps of a version that we do not
# know. TOON is text, and text starts with no control octet but tab, line feed and carriage return.
ENVELOPE_STARTS: Final = tuple(bytes([octet]) for octet in range(0x20) if octet not in b"\t\n\r")


def _speaks_aether(agent: Agent, _prepare: Prepare) -> bool:
    return agent.settings.aether


# Rarely used modules are imported with the first packet that needs them, to keep cold starts short.


def _read_purse_packet(agent: Agent, packet: IncomingPacket) -> Purchase:
    from farthing.connector.purse_packet import read_purse_packet

    return read_purse_packet(agent, packet)


def _read_envelope(agent: Agent, packet: IncomingPacket) -> Purchase:
    from farthing.connector.subscriptions.envelope import read_envelope

    return read_envelope(agent, packet)


def _read_aether_event(agent: Agent, packet: IncomingPacket) -> Purchase:
    from farthing.connector.aether_event import AetherEvent

    return AetherEvent.read(agent, packet)


RECEIVERS: Sequence[Receiver] = (
    Receiver("purse", _read_purse_packet, segment=PURSE_SEGMENT),
    Receiver("Aether event", _read_aether_event, begins=(AETHER_START,), recognises=_speaks_aether),
    Receiver("BTP-NIPs envelope", _read_envelope, begins=ENVELOPE_STARTS, word=in_our_form),
    # The last receiver takes every packet that no other has recognised. Its rejects say that an
    # event was expected.
    Receiver("TOON event", ToonEvent.read),
)


def choose(agent: Agent, prepare: Prepare) -> Receiver | None:
    """The first receiver that recognises a packet for us."""
    segment = _segment(agent, prepare.destination)
    for receiver in RECEIVERS:
        if receiver.segment and receiver.segment != segment:
            continue
        if not prepare.data.startswith(receiver.begins):
            continue
        if receiver.recognises is None or receiver.recognises(agent, prepare):
            return receiver
    return None


def has_segment(agent: Agent, destination: str) -> bool:
    """Whether a receiver has the segment behind our own address."""
    segment = _segment(agent, destination)
    return any(receiver.segment == segment for receiver in RECEIVERS if receiver.segment)


def _segment(agent: Agent, destination: str) -> str:
    return destination[len(agent.settings.own_ilp_address) + 1 :].partition(".")[0]


def word_reject(
    agent: Agent, packet: IncomingPacket, code: Code, message: str
) -> tuple[str, bytes]:
    """Message and data of a reject that has only a text, in the form of the packet's protocol. A
    packet may be rejected before it is decoded, or because a receiver fails, so this function must
    never raise."""
    with suppress(Exception):
        prepare = decode_prepare(packet.octets)
        if is_prefix(agent.settings.own_ilp_address, prepare.destination):
            receiver = choose(agent, prepare)
            if receiver is not None:
                return receiver.word(code, message)
    return message, b""
