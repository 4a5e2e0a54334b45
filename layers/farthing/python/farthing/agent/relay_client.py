"""Other relays, by the websockets library's client, which needs no event loop of its own.

The connection goes only where `HostRules` allow, redirects are not followed, and every answer is
bounded in events, octets and seconds.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import orjson

from farthing.ports.hosts import HostNotAllowed, HostRules
from farthing.ports.relays import Filter, ReadLimits, RelayFailed

_SUBSCRIPTION = "farthing"
_LARGEST_FRAME = 1024 * 1024
# Frames that wait to be read: a fast relay must not fill the memory while we check signatures.
_FRAMES_WAITING = 4
_PORTS = {"ws": 80, "wss": 443}


class SocketRelays:
    def __init__(self, rules: HostRules | None = None) -> None:
        self._rules = rules or HostRules()

    def read(self, url: str, filters: Sequence[Filter], limits: ReadLimits) -> Iterator[Any]:
        # Few functions read other relays, and the others need not load it.
        from websockets.exceptions import WebSocketException

        try:
            yield from self._read(url, filters, limits)
        except (EOFError, OSError, TimeoutError, WebSocketException) as error:
            raise RelayFailed(type(error).__name__) from None
        except (HostNotAllowed, ValueError) as error:
            raise RelayFailed(str(error) or type(error).__name__) from None

    def _read(self, url: str, filters: Sequence[Filter], limits: ReadLimits) -> Iterator[Any]:
        from websockets.sync.client import connect

        until = time.monotonic() + limits.seconds
        parts = urlsplit(url)
        self._rules.check_scheme(parts.scheme)
        port = parts.port or _PORTS[parts.scheme]
        # No proxy: the URL is a peer's, and nobody else may answer for it.
        with (
            self._rules.connect(parts.hostname or "", port, limits.seconds) as connection,
            connect(
                url, sock=connection, open_timeout=limits.seconds, close_timeout=1,
                max_size=_LARGEST_FRAME, max_queue=_FRAMES_WAITING, compression=None, proxy=None,
            ) as socket,
        ):  # fmt: skip
            socket.send(orjson.dumps(["REQ", _SUBSCRIPTION, *filters]).decode())
            events, octets = 0, 0
            while events < limits.events and octets < limits.octets:
                text = socket.recv(max(0.0, until - time.monotonic()))
                octets += len(text)
                frame = _frame(text)
                if frame[:2] == ["EVENT", _SUBSCRIPTION] and len(frame) > 2:
                    events += 1
                    yield frame[2]
                elif frame[:2] == ["EOSE", _SUBSCRIPTION]:
                    return
                elif frame[:2] == ["CLOSED", _SUBSCRIPTION]:
                    raise RelayFailed("the relay refuses what was asked")


def _frame(text: str | bytes) -> list[Any]:
    frame = orjson.loads(text)
    return frame if isinstance(frame, list) else []
