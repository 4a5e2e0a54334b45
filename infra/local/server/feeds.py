"""The connections to relays of followed keys, on one machine: opened as the follow list says, kept
open, and closed when the server stops. Each has a thread of its own, which waits most of the time.
"""

import logging
import threading
from collections.abc import Callable

from farthing.agent.feeds import FollowedRelay, Reading, total_allowance
from farthing.agent.follows import newest
from farthing.agent.places import feed_places
from farthing.context import Agent
from farthing.nostr.kinds import Kind

log = logging.getLogger("farthing")

_LOOK_SECONDS = 1.0  # between two looks at the follow list
_PLACES_SECONDS = 60.0  # after which relay lists are read again, whatever the follow list says


class FollowedRelays:
    def __init__(self, agent: Agent, reading: Reading) -> None:
        self._agent = agent
        self._reading = reading
        self._together = total_allowance(agent)
        self._running: dict[str, tuple[FollowedRelay, threading.Thread]] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feeds", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._keep_only({})

    def _run(self) -> None:
        listed, looked = "", 0.0
        while not self._stopping.is_set():
            follows = newest(self._agent, self._agent.settings.pubkey, Kind.FOLLOWS)
            now, current = self._agent.clock(), follows.id if follows else ""
            if current != listed or now - looked >= _PLACES_SECONDS:
                listed, looked = current, now
                self._guarded(lambda: self._keep_only(feed_places(self._agent)))
            self._stopping.wait(_LOOK_SECONDS)

    def _keep_only(self, places: dict[str, list[str]]) -> None:
        """Stop reading where others are to be read, or nobody, and start where nothing is read."""
        over = [
            url
            for url, (relay, thread) in self._running.items()
            if sorted(places.get(url, [])) != relay.authors or not thread.is_alive()
        ]
        for url in over:
            self._running[url][0].stop()
        for url in over:
            self._running.pop(url)[1].join()
        for url in places.keys() - self._running.keys():
            relay = FollowedRelay(self._agent, url, places[url], self._reading, self._together)
            stay = relay.stay
            thread = threading.Thread(
                target=lambda stay=stay: self._guarded(stay), name=f"feed {url}", daemon=True
            )
            self._running[url] = relay, thread
            thread.start()

    def _guarded(self, work: Callable[[], None]) -> None:
        """One relay that breaks us must not end the others; it is begun anew with the next look."""
        try:
            work()
        except Exception:
            log.exception("reading followed keys failed")
