"""The sender of a message: its connection, the time of the message, and its rate limit."""

import threading
from dataclasses import dataclass, field

from farthing.context import Agent
from farthing.nostr.messages import Prefix, Refused
from farthing.store.sessions import Connection

_WINDOW_SECONDS = 10
_FAST_SECONDS = 10
_MOST_FAST_SENDERS = 10_000


class MarkedAether(Exception):
    """A Nostr message on a connection that is marked as Aether."""


@dataclass
class Caller:
    """One message's sender.

    `arrive` counts the message and reads the connection in one request. A verb calls it in parallel
    with its first other request, so that it adds no round trip.
    """

    agent: Agent
    connection_id: str
    time_ms: int  # when the gateway received the message: decides which of two is later
    host: str = ""
    ip: str | None = None
    # Whether the message is a Nostr message. A connection that is marked as Aether allows none.
    speaks_nostr: bool = True
    _connection: Connection | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def arrive(self) -> Connection:
        """Count the message and read the connection. Raises Refused if the client exceeds its rate,
        and MarkedAether for a Nostr message on a connection that is marked as Aether."""
        connection = self.visit()
        if self.speaks_nostr and connection.is_aether:
            raise MarkedAether
        self._check_rate(connection)
        return connection

    def visit(self) -> Connection:
        """The connection, whose message is counted. Whether it may send one is for `arrive`."""
        with self._lock:
            if self._connection is None:
                self._connection = self.agent.sessions.visit(self.connection_id, self._now)
                self._begin_window(self._connection)
            return self._connection

    @property
    def is_hasty(self) -> bool:
        """Whether the message will probably be refused. If so, `arrive` must come before any costly
        work."""
        return self.agent.part(FastSenders).is_known(self.connection_id, self._now)

    @property
    def _now(self) -> int:
        return self.time_ms // 1000

    def _begin_window(self, connection: Connection) -> None:
        """Begin a new window of counting from time to time. The excess so far is carried over."""
        limited = self.agent.settings.requests_per_second > 0
        # Also if the clock was set back: otherwise no time would pass until the clock has caught
        # up.
        if limited and not 0 <= self._now - connection.base_time < _WINDOW_SECONDS:
            spent = connection.messages - self._excess(connection)
            self.agent.sessions.rebase(connection.id, spent, self._now)

    def _excess(self, connection: Connection) -> int:
        """Messages beyond those that the time since the window's start allows for."""
        elapsed = max(0, self._now - connection.base_time)
        sent = connection.messages - connection.base_messages
        return max(0, sent - self.agent.settings.requests_per_second * elapsed)

    def _check_rate(self, connection: Connection) -> None:
        settings = self.agent.settings
        if not settings.requests_per_second:
            return
        excess = self._excess(connection)
        if 2 * excess > settings.request_burst:
            self.agent.part(FastSenders).note(self.connection_id, self._now)
        if excess <= settings.request_burst:
            return
        if excess > 2 * settings.request_burst:  # the client was told often enough
            self.agent.connections.close(self.connection_id)
        raise Refused(
            Prefix.RATE_LIMITED, f"at most {settings.requests_per_second} messages a second"
        )


class FastSenders:
    """Connections close to their rate limit, as far as this process has seen them.

    A message is counted in parallel with the first work for it, which costs no time. If the message
    is then refused, that work was useless: an EVENT leaves postings without an event. They cannot
    be removed, because another client may be storing the same event. So a message of a connection
    that is listed here is counted first.
    """

    def __init__(self, _agent: Agent) -> None:
        self._seen: dict[str, int] = {}

    def note(self, connection_id: str, now: int) -> None:
        if len(self._seen) >= _MOST_FAST_SENDERS:
            self._seen = {}  # some fast senders are then not recognised for one message
        self._seen[connection_id] = now

    def is_known(self, connection_id: str, now: int) -> bool:
        return now - self._seen.get(connection_id, -_FAST_SECONDS) < _FAST_SECONDS
