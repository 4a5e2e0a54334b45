"""A packet on its way through the connector."""

from dataclasses import dataclass

from farthing.ilp.packet import Prepare
from farthing.store.ledger import Peer


@dataclass(frozen=True, slots=True)
class IncomingPacket:
    peer: Peer
    prepare: Prepare

    @property
    def expires_ms(self) -> int:
        return round(self.prepare.expires_at.timestamp() * 1000)

    def milliseconds_left(self, now_ms: int) -> int:
        return self.expires_ms - now_ms
