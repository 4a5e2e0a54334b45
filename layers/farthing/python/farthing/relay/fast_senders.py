"""Connections close to their rate limit, as far as this process has seen them.

A message is counted in parallel with the first work for it, which costs no time. If the message is
then refused, that work was useless: an EVENT leaves postings without an event. They cannot be
removed, because another client may be storing the same event. So a message of a connection that is
listed here is counted first.
"""

from farthing.context import Agent

_SECONDS = 10
_MOST = 10_000


class FastSenders:
    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def note(self, connection_id: str, now: int) -> None:
        if len(self._seen) >= _MOST:
            self._seen = {}  # some fast senders are then not recognised for one message
        self._seen[connection_id] = now

    def is_known(self, connection_id: str, now: int) -> bool:
        return now - self._seen.get(connection_id, -_SECONDS) < _SECONDS


def fast_senders(agent: Agent) -> FastSenders:
    """The fast senders that this agent has seen."""
    return agent.part(_fast_senders)


def _fast_senders(_agent: Agent) -> FastSenders:
    return FastSenders()
