"""Who sent a message: the connection, when it was sent, and whether it may go on asking."""

import threading
from dataclasses import dataclass, field

from farthing.context import Agent
from farthing.nostr.messages import Prefix, Refused
from farthing.relay.fast_senders import fast_senders
from farthing.store.sessions import Connection

_WINDOW_SECONDS = 10


class MarkedAether(Exception):
    """A message of Nostr's on a connection that is marked as Aether."""


@dataclass
class Caller:
    """One message's sender.

    `arrive` counts the message and reads the connection in one request. A verb calls it next to its
    first other request, so that it costs no round trip of its own.
    """

    agent: Agent
    connection_id: str
    time_ms: int  # when the gateway took the message: decides which of two came later
    host: str = ""
    ip: str | None = None
    # Whether the message is one of Nostr's. On a connection that is marked as Aether there is none.
    speaks_nostr: bool = True
    _connection: Connection | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def arrive(self) -> Connection:
        """The connection as it is. Raises Refused when it sends faster than allowed, and
        MarkedAether for a message of Nostr's on a connection that has none."""
        with self._lock:
            if self._connection is None:
                self._connection = self.agent.sessions.visit(self.connection_id, self._now)
                self._begin_window(self._connection)
        if self.speaks_nostr and self._connection.is_aether:
            raise MarkedAether
        self._check_rate(self._connection)
        return self._connection

    @property
    def is_hasty(self) -> bool:
        """Whether it may well be refused, so that what costs anything waits for `arrive`."""
        return fast_senders(self.agent).is_known(self.connection_id, self._now)

    @property
    def _now(self) -> int:
        return self.time_ms // 1000

    @property
    def has_arrived(self) -> bool:
        return self._connection is not None

    def _begin_window(self, connection: Connection) -> None:
        """Now and then count from anew; what is over the rate so far is carried along."""
        limited = self.agent.settings.requests_per_second > 0
        # Also when the clock was set back: no time would pass until it had caught up.
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
        excess = self._excess(connection)
        if settings.requests_per_second and 2 * excess > settings.request_burst:
            fast_senders(self.agent).note(self.connection_id, self._now)
        if not settings.requests_per_second or excess <= settings.request_burst:
            return
        if excess > 2 * settings.request_burst:  # told often enough
            self.agent.connections.close(self.connection_id)
        raise Refused(
            Prefix.RATE_LIMITED, f"at most {settings.requests_per_second} messages a second"
        )
