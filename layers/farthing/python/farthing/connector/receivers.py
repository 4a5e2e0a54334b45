"""What a packet for us may carry. The first receiver in the list that recognises a packet takes it.

How to write a receiver stands in `connector.purchase`.
"""

from collections.abc import Sequence

from farthing.connector.purchase import Receiver
from farthing.connector.purse_packet import is_for_a_purse, read_purse_packet
from farthing.connector.subscriptions.envelope import ENVELOPES
from farthing.connector.toon_event import ToonEvent

RECEIVERS: Sequence[Receiver] = (
    Receiver("purse", is_for_a_purse, read_purse_packet),
    ENVELOPES,
    # Takes whatever nobody before it has recognised: its rejects say that an event was expected.
    Receiver("TOON event", lambda *_: True, ToonEvent.read),
)
