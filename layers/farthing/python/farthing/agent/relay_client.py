"""A client for other relays, with the synchronous client of the websockets library, which needs no
event loop.

The connection goes only where `HostRules` allow, redirects are not followed, and every answer is
bounded in events, octets and seconds.
"""

import http.client
import socket as sockets
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

import orjson

from farthing.ports.hosts import HostNotAllowed, HostRules, why_unreachable
from farthing.ports.relays import (
    Allowance,
    AllowanceSpent,
    Filter,
    Numbered,
    Published,
    ReadLimits,
    RelayFailed,
    RelayRefused,
    TooMuchAsked,
)

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

    from farthing.nostr.negentropy import SealedVector

Take = Callable[[Any], object]
Frame = list[Any]

_READ = "farthing"
_CHANGES = "farthing-changes"
_SYNC = "farthing-sync"
_LARGEST_FRAME = 1024 * 1024
_LARGEST_DOCUMENT = 256 * 1024
# Frames that wait to be read: a fast relay must not fill the memory while we check signatures.
_FRAMES_WAITING = 4
_PORTS = {"ws": 80, "wss": 443}
# Twice as many hexadecimal digits fit into a message, by the smallest of the common limits.
_NEGENTROPY_FRAME = 14_000
_MOST_ROUNDS = 1000  # rounds of a reconciliation: a relay could continue without end
_MOMENT = 0.5  # seconds that `wait` waits
_MOST_AT_ONCE = 100  # frames that `wait` takes
_PING_SECONDS = 30
# A relay that answers only by NOTICE does not know the verb.
_AFTER_NOTICE_SECONDS = 3.0


class SocketRelays:
    def __init__(self, rules: HostRules | None = None) -> None:
        self._rules = rules or HostRules()
        self._open: set[sockets.socket] = set()
        self._is_stopped = False

    def stop(self) -> None:
        """End the connections, and open no more."""
        self._is_stopped = True
        for connection in list(self._open):
            _shut_down(connection)

    def read(self, url: str, filters: Sequence[Filter], limits: ReadLimits) -> Iterator[Any]:
        number = 0
        allowance = Allowance(limits.events, limits.octets)
        with self.session(url, allowance, limits.seconds) as session:
            try:
                for number, event in enumerate(session.read(filters), 1):
                    yield event
                    if number >= limits.events:
                        return
            except AllowanceSpent:
                return

    @contextmanager
    def session(self, url: str, allowance: Allowance, seconds: float) -> Iterator["SocketSession"]:
        # Imported here: few functions talk to other relays.
        from websockets.exceptions import ConnectionClosed, WebSocketException
        from websockets.sync.client import connect

        from farthing.agent.relay_connection import counting

        try:
            parts = _split(url)
            # No proxy: the URL comes from a stranger, and a proxy would bypass the check of the
            # host's address.
            with (
                self._connect(parts, seconds) as connection,
                self._until_stopped(connection),
                connect(
                    url, sock=connection, open_timeout=seconds, close_timeout=1,
                    ping_interval=_PING_SECONDS, max_size=_LARGEST_FRAME,
                    max_queue=_FRAMES_WAITING, compression=None, proxy=None,
                    create_connection=counting(allowance),
                ) as socket,
            ):  # fmt: skip
                yield SocketSession(socket, connection, allowance, seconds)
        except TimeoutError:
            raise RelayFailed(f"no answer within {seconds:g} seconds") from None
        except ConnectionClosed as error:
            raise RelayFailed(f"the connection ended: {error}"[:200]) from None
        except OSError as error:
            raise RelayFailed(f"it cannot be reached: {why_unreachable(error)}") from None
        except (EOFError, WebSocketException) as error:
            raise RelayFailed((str(error) or type(error).__name__)[:200]) from None
        except (HostNotAllowed, ValueError) as error:
            raise RelayFailed(str(error) or type(error).__name__) from None

    @contextmanager
    def _until_stopped(self, connection: sockets.socket) -> Iterator[None]:
        self._open.add(connection)
        try:
            self._check_running()
            yield
        finally:
            self._open.discard(connection)

    def _check_running(self) -> None:
        if self._is_stopped:
            raise RelayFailed("the agent is stopping")

    def _connect(self, parts: SplitResult, seconds: float) -> sockets.socket:
        self._check_running()
        self._rules.check_scheme(parts.scheme)
        return self._rules.connect(parts.hostname or "", _port(parts), seconds)

    def information(self, url: str, seconds: float) -> Mapping[str, Any]:
        try:
            return self._information(_split(url), seconds)
        except OSError as error:
            raise RelayFailed(f"it cannot be reached: {why_unreachable(error)}") from None
        except http.client.HTTPException as error:
            raise RelayFailed(f"expected an answer by HTTP: {type(error).__name__}") from None
        except (HostNotAllowed, ValueError) as error:
            raise RelayFailed(str(error) or type(error).__name__) from None

    def _information(self, parts: SplitResult, seconds: float) -> Mapping[str, Any]:
        connection = self._connect(parts, seconds)
        # A relay that sends one byte at a time would never exceed the timeout of a single read.
        too_long = threading.Timer(seconds, _shut_down, [connection])
        too_long.start()
        try:
            if parts.scheme == "wss":
                context = ssl.create_default_context()
                connection = context.wrap_socket(connection, server_hostname=parts.hostname)
            request = http.client.HTTPConnection(parts.hostname or "", _port(parts))
            request.sock = connection
            request.request("GET", parts.path or "/", headers={"Accept": "application/nostr+json"})
            response = request.getresponse()
            body = response.read(_LARGEST_DOCUMENT)
        finally:
            too_long.cancel()
            connection.close()
        document = orjson.loads(body) if response.status == 200 else None
        if not isinstance(document, dict):
            raise RelayFailed("the relay has no information document")
        return document


class SocketSession:
    def __init__(
        self,
        socket: "ClientConnection",
        connection: sockets.socket,
        allowance: Allowance,
        seconds: float,
    ) -> None:
        self._socket = socket
        self._connection = connection
        self._allowance = allowance
        self._seconds = seconds
        self._taking: dict[str, Take] = {}

    def read(self, filters: Sequence[Filter]) -> Iterator[Any]:
        self._send("REQ", _READ, *filters)
        for frame in self._answers(_READ):
            match frame:
                case ["EVENT", _, event, *_]:
                    yield event
                case ["EOSE", *_]:
                    self._send("CLOSE", _READ)
                    return
                case ["CLOSED", *_]:
                    raise RelayRefused(f"the relay refuses the request: {_reason(frame)}")

    def changes(self, filter: Filter, since: int) -> Iterator[Numbered]:
        self._send("CHANGES", _CHANGES, {**filter, "since": since})
        for frame in self._answers(_CHANGES):
            match frame:
                case ["CHANGES", _, "EVENT", int(number), event, *_]:
                    yield Numbered(number, event)
                case ["CHANGES", _, "EOSE", int(), {"next": int(behind)}, *_]:
                    yield Numbered(behind, truncated=True)
                    return
                case ["CHANGES", _, "EOSE", int(last), *_]:
                    yield Numbered(last)
                    return
                case ["CHANGES", _, "ERR", *_] | ["CLOSED", *_]:
                    raise RelayRefused(f"the relay ends the feed: {_reason(frame)}")

    def reconcile(self, filter: Filter, ours: "SealedVector") -> Iterator[str]:
        # Imported here: every function makes this client, and few reconcile.
        from farthing.nostr.negentropy import Initiator, InvalidNegentropy

        initiator = Initiator(ours, _NEGENTROPY_FRAME)
        message: bytes | None = initiator.initiate()
        head: tuple[object, ...] = ("NEG-OPEN", _SYNC, filter)
        for _ in range(_MOST_ROUNDS):
            if message is None:
                self._send("NEG-CLOSE", _SYNC)
                return
            self._send(*head, message.hex())
            frame = next(self._answers(_SYNC))
            if frame[0] != "NEG-MSG" or len(frame) < 3 or type(frame[2]) is not str:
                refused = TooMuchAsked if _is_too_much(frame) else RelayRefused
                raise refused(f"the relay ends the sync: {_reason(frame)}")
            try:
                message, _, need = initiator.reconcile(bytes.fromhex(frame[2]))
            except (InvalidNegentropy, ValueError):
                raise RelayFailed(
                    "expected negentropy as the relay's answer, got other data"
                ) from None
            yield from (each.hex() for each in need)
            head = ("NEG-MSG", _SYNC)
        raise RelayFailed(f"expected the sync to end within {_MOST_ROUNDS} rounds")

    def subscribe(self, name: str, filters: Sequence[Filter], take: Take) -> None:
        self._taking[name] = take
        self._send("REQ", name, *filters)

    def wait(self) -> None:
        seconds = _MOMENT
        for _ in range(_MOST_AT_ONCE):
            if self._receive(seconds) is None:
                return
            seconds = 0.0  # then also take the frames that have come meanwhile

    def publish(self, event: Mapping[str, Any]) -> Published:
        self._send("EVENT", event)
        for frame in self._answers(event["id"]):
            if frame[0] == "OK" and len(frame) > 2:
                message = frame[3] if len(frame) > 3 and type(frame[3]) is str else ""
                return Published(frame[2] is True, message[:1024])
        raise AssertionError("answers have no end but an error")

    def abort(self) -> None:
        _shut_down(self._connection)

    def _send(self, *parts: object) -> None:
        self._socket.send(orjson.dumps(parts).decode())

    def _answers(self, name: str) -> Iterator[Frame]:
        """The frames with a subscription's name, until the time for an answer is over."""
        until = time.monotonic() + self._seconds
        notice = ""
        while True:
            frame = self._next(until - time.monotonic())
            if frame is None:
                raise RelayFailed(notice or f"no answer within {self._seconds:g} seconds")
            if frame[1] == name:
                yield frame
            elif frame[0] == "NOTICE":
                notice = f"the relay says: {_reason(frame)}"
                until = min(until, time.monotonic() + _AFTER_NOTICE_SECONDS)

    def _next(self, seconds: float) -> Frame | None:
        """The next frame that no subscription takes, or None if none comes in time."""
        ends = time.monotonic() + seconds
        while (frame := self._receive(ends - time.monotonic())) is not None:
            if frame:
                return frame
        return None

    def _receive(self, seconds: float) -> Frame | None:
        """One frame, or None if none comes in time. A frame that a subscription has taken, or that
        is invalid, gives an empty one."""
        try:
            # Undecoded, so that octets are counted and not characters.
            text = self._socket.recv(max(0.0, seconds), decode=False)
        except TimeoutError:
            return None
        frame = orjson.loads(text)
        is_frame = isinstance(frame, list) and len(frame) > 1
        is_event = is_frame and frame[0] in ("EVENT", "CHANGES")
        self._allowance.spend(int(is_event), len(text))
        take = self._taking.get(frame[1]) if is_frame and type(frame[1]) is str else None
        if take is None:
            return frame if is_frame else []
        if frame[0] == "EVENT" and len(frame) > 2:
            take(frame[2])
        elif frame[0] == "CLOSED":
            raise RelayRefused(f"the relay ends the subscription: {_reason(frame)}")
        return []


def _shut_down(connection: sockets.socket) -> None:
    with suppress(OSError):
        connection.shutdown(sockets.SHUT_RDWR)


def _split(url: str) -> SplitResult:
    parts = urlsplit(url)
    if parts.scheme not in _PORTS:
        raise ValueError("expected a ws:// or wss:// URL of a relay")
    return parts


def _port(parts: SplitResult) -> int:
    return parts.port or _PORTS[parts.scheme]


def _is_too_much(frame: Frame) -> bool:
    """Whether a sync is refused for its size: by NIP-77, or by a code of our own document."""
    why = frame[2] if len(frame) > 2 else None
    return type(why) is str and why.startswith(("blocked:", "RESULTS_TOO_BIG"))


def _reason(frame: Frame) -> str:
    return str(frame[-1])[:200]
