"""A WebSocket to another relay whose pings and pongs count as octets that the relay has sent. The
library answers them by itself, so nothing else would bound them."""

from websockets.frames import CTRL_OPCODES, Frame
from websockets.http11 import Request, Response
from websockets.sync.client import ClientConnection

from farthing.ports.relays import Allowance, RelayFailed

_HEAD = 2  # octets of a frame's header, at least


def counting(allowance: Allowance) -> type[ClientConnection]:
    class CountingConnection(ClientConnection):
        def process_event(self, event: Request | Response | Frame) -> None:
            if isinstance(event, Frame) and event.opcode in CTRL_OPCODES:
                try:
                    allowance.spend(0, _HEAD + len(event.data))
                except RelayFailed:
                    self.close_socket()
                    return
            super().process_event(event)

    return CountingConnection
