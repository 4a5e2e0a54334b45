"""Delivers broadcasts on one machine: a thread looks for due deliveries every second."""

import logging
import threading

from farthing.agent.broadcast import broadcast_new, deliver_due
from farthing.context import Agent

log = logging.getLogger("farthing")

_LOOK_SECONDS = 1.0


class OutboxRunner:
    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop after the deliveries under way, which take a few seconds at most."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(_LOOK_SECONDS):
            try:
                if self._agent.settings.broadcast_all:
                    broadcast_new(self._agent)
                deliver_due(self._agent, is_stopping=self._stopping.is_set)
            except Exception:
                log.exception("broadcasting failed")
