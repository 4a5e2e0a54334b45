"""Other relays, by the websockets library's client, which needs no event loop of its own."""

import time
from collections.abc import Sequence
from typing import Any

import orjson

from farthing.ports.relays import Filter, RelayFailed

_SUBSCRIPTION = "farthing"
_LARGEST_FRAME = 1024 * 1024


class SocketRelays:
    def read(self, url: str, filters: Sequence[Filter], most: int, seconds: float) -> list[Any]:
        # Few functions read other relays, and the others need not load it.
        from websockets.exceptions import WebSocketException
        from websockets.sync.client import connect

        until = time.monotonic() + seconds
        request = orjson.dumps(["REQ", _SUBSCRIPTION, *filters]).decode()
        found: list[Any] = []
        try:
            # No proxy: the URL is a peer's, and nobody else may answer for it.
            with connect(
                url, open_timeout=seconds, close_timeout=1, max_size=_LARGEST_FRAME, proxy=None
            ) as socket:
                socket.send(request)
                while len(found) < most:
                    frame = _frame(socket.recv(max(0.0, until - time.monotonic())))
                    if frame[:2] == ["EVENT", _SUBSCRIPTION] and len(frame) > 2:
                        found.append(frame[2])
                    elif frame[:2] == ["EOSE", _SUBSCRIPTION]:
                        break
                    elif frame[:2] == ["CLOSED", _SUBSCRIPTION]:
                        raise RelayFailed("the relay refuses what was asked")
        except (OSError, TimeoutError, ValueError, WebSocketException) as error:
            raise RelayFailed(type(error).__name__) from None
        return found


def _frame(text: str | bytes) -> list[Any]:
    frame = orjson.loads(text)
    return frame if isinstance(frame, list) else []
