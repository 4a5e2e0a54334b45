"""Connections that send nearly more than they may, as far as this process has seen them.

A message is counted beside the first thing that is done for it, which costs no time. If it is then
refused, that was done in vain: of an EVENT, postings stay that point nowhere. They cannot be taken
away again, since by then they may be those of somebody who stores the same event. So whoever is
seen here is counted first.
"""

from farthing.context import Agent

_SECONDS = 10
_MOST = 10_000


class FastSenders:
    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def note(self, connection_id: str, now: int) -> None:
        if len(self._seen) >= _MOST:
            self._seen = {}  # at worst, a few are not recognised once
        self._seen[connection_id] = now

    def is_known(self, connection_id: str, now: int) -> bool:
        return now - self._seen.get(connection_id, -_SECONDS) < _SECONDS


def fast_senders(agent: Agent) -> FastSenders:
    """Those that this agent has seen."""
    return agent.part(_fast_senders)


def _fast_senders(_agent: Agent) -> FastSenders:
    return FastSenders()
