"""What a packet for us may carry. The first receiver in the list that recognises a packet takes it.

How to write a receiver stands in `connector.purchase`.
"""

from collections.abc import Sequence
from typing import Final

from farthing.connector.incoming import IncomingPacket
from farthing.connector.purchase import Purchase, Receiver
from farthing.connector.purse_packet import is_for_a_purse, read_purse_packet
from farthing.connector.subscriptions.envelope import ENVELOPES
from farthing.connector.toon_event import ToonEvent
from farthing.context import Agent
from farthing.ilp.packet import Prepare

AETHER_START: Final = b"event_id:"


def _is_aether_event(agent: Agent, prepare: Prepare) -> bool:
    return agent.settings.aether and prepare.data.startswith(AETHER_START)


def _read_aether_event(agent: Agent, packet: IncomingPacket) -> Purchase:
    # Loaded with the first such packet: its libraries take their time.
    from farthing.connector.aether_event import AetherEvent

    return AetherEvent.read(agent, packet)


RECEIVERS: Sequence[Receiver] = (
    Receiver("purse", is_for_a_purse, read_purse_packet),
    Receiver("Aether event", _is_aether_event, _read_aether_event),
    ENVELOPES,
    # Takes whatever nobody before it has recognised: its rejects say that an event was expected.
    Receiver("TOON event", lambda *_: True, ToonEvent.read),
)
