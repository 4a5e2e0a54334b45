"""Who sent a message: the connection, when it was sent, and whether it may go on asking."""

import threading
from dataclasses import dataclass, field

from farthing.agent import Agent
from farthing.nostr.messages import Prefix, Refused
from farthing.store.sessions import Connection


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
    _connection: Connection | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def arrive(self) -> Connection:
        """The connection as it is. Raises Refused when it sends faster than allowed."""
        with self._lock:
            if self._connection is None:
                now = self.time_ms // 1000
                self._connection = self.agent.sessions.visit(self.connection_id, now)
        self._check_rate(self._connection)
        return self._connection

    @property
    def has_arrived(self) -> bool:
        return self._connection is not None

    def _check_rate(self, connection: Connection) -> None:
        settings = self.agent.settings
        if not settings.requests_per_second:
            return
        elapsed = max(0, self.time_ms // 1000 - connection.base_time)
        allowed = settings.request_burst + settings.requests_per_second * elapsed
        sent = connection.messages - connection.base_messages
        if sent > allowed:
            if sent > allowed + settings.request_burst:  # told often enough
                self.agent.connections.close(self.connection_id)
            raise Refused(
                Prefix.RATE_LIMITED, f"at most {settings.requests_per_second} messages a second"
            )
