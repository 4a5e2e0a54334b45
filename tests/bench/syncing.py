"""One connection that reconciles a set of events with a relay (NIP-77)."""

import socket
import time
from dataclasses import dataclass

import orjson

from farthing.nostr.negentropy import Initiator
from tests.bench.wire import PING, PONG, FrameReader, masked_frame, upgrade_request

FRAME = 60_000


class SyncingConnection:
    """One blocking connection that syncs."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.sendall(upgrade_request("127.0.0.1", port))
        while not self._socket.recv(65536).endswith(b"\r\n\r\n"):
            pass
        self._frames = FrameReader()
        self._waiting: list[bytes] = []

    def ask(self, *parts: object) -> bytes:
        """The octets that answer a NEG-OPEN or NEG-MSG."""
        self.tell(*parts)
        while True:
            frame = orjson.loads(self._next())
            assert frame[0] != "NEG-ERR", frame
            if frame[0] == "NEG-MSG":
                return bytes.fromhex(frame[2])

    def tell(self, *parts: object) -> None:
        self._socket.sendall(masked_frame(orjson.dumps(parts)))

    def _next(self) -> bytes:
        while not self._waiting:
            for opcode, payload in self._frames.feed(self._socket.recv(1 << 20)):
                if opcode == PING:
                    self._socket.sendall(masked_frame(payload, PONG))
                else:
                    self._waiting.append(payload)
        return self._waiting.pop(0)

    def close(self) -> None:
        self._socket.close()


@dataclass
class Session:
    rounds: int = 0
    octets: int = 0
    have: int = 0
    need: int = 0


def whole_sync(
    peer: SyncingConnection, ours: Initiator, filter: dict[str, object]
) -> tuple[Session, float]:
    """The differences that were found, and the seconds that it took."""
    session = Session()
    have: set[bytes] = set()
    need: set[bytes] = set()

    def sync() -> None:
        head: tuple[object, ...] = ("NEG-OPEN", "bench", filter)
        message: bytes | None = ours.initiate()
        while message is not None:
            reply = peer.ask(*head, message.hex())
            session.rounds += 1
            session.octets += len(message) + len(reply)
            message, more, lacking = ours.reconcile(reply)
            have.update(more)
            need.update(lacking)
            head = ("NEG-MSG", "bench")
        peer.tell("NEG-CLOSE", "bench")

    started = time.perf_counter()
    sync()
    whole = time.perf_counter() - started
    session.have, session.need = len(have), len(need)
    return session, whole
