"""The connections to relays of followed keys, on one machine: opened for the follow list, kept
open, and closed when the server stops. Each has a thread of its own, which waits most of the time.
"""

import logging
import threading
import time
from collections.abc import Callable

from farthing.agent.feeds import FollowedRelay, Reading, total_allowance
from farthing.agent.follows import newest
from farthing.agent.places import feed_places
from farthing.context import Agent
from farthing.nostr.kinds import Kind

log = logging.getLogger("farthing")

_LOOK_SECONDS = 1.0  # between two reads of the follow list
_PLACES_SECONDS = 60.0  # between two reads of the relay lists, even if the follow list is the same
# How long a stop waits for connections to end. One that is still being opened, to a relay that does
# not answer, cannot be ended; it does nothing more once it is open.
_STOP_SECONDS = 5.0


class FollowedRelays:
    def __init__(self, agent: Agent, reading: Reading) -> None:
        self._agent = agent
        self._reading = reading
        self._together = total_allowance(agent)
        self._places: dict[str, list[str]] = {}
        self._running: dict[str, tuple[FollowedRelay, threading.Thread]] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feeds", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        for relay, _ in self._running.values():
            relay.stop()
        ends = time.monotonic() + _STOP_SECONDS
        for _, thread in self._running.values():
            thread.join(max(0.0, ends - time.monotonic()))

    def _run(self) -> None:
        listed, looked = "", 0.0
        while not self._stopping.is_set():
            follows = newest(self._agent, self._agent.settings.pubkey, Kind.FOLLOWS)
            now, current = self._agent.clock(), follows.id if follows else ""
            if current != listed or now - looked >= _PLACES_SECONDS:
                listed, looked = current, now
                self._guarded(self._find_places)
            self._guarded(self._keep_to_places)
            self._stopping.wait(_LOOK_SECONDS)

    def _find_places(self) -> None:
        found = feed_places(self._agent)
        self._places = {url: sorted(authors) for url, authors in found.items()}
        # What an error has ended begins anew.
        ended = [url for url, (_, thread) in self._running.items() if not thread.is_alive()]
        for url in ended:
            del self._running[url]

    def _keep_to_places(self) -> None:
        """Stop the relays that are not in the places, or have other authors there, and start the
        missing ones. A relay that has yet to end is waited for without holding up the others."""
        for url, (relay, thread) in list(self._running.items()):
            if self._places.get(url) != relay.authors and not relay.is_stopped:
                relay.stop()
            if relay.is_stopped and not thread.is_alive():
                del self._running[url]
        for url in self._places.keys() - self._running.keys():
            relay = FollowedRelay(
                self._agent, url, self._places[url], self._reading, self._together
            )
            stay = relay.stay
            thread = threading.Thread(
                target=lambda stay=stay: self._guarded(stay), name=f"feed {url}", daemon=True
            )
            self._running[url] = relay, thread
            thread.start()

    def _guarded(self, work: Callable[[], None]) -> None:
        """Log an error, so that one relay does not end the others. The next look restarts it."""
        try:
            work()
        except Exception:
            log.exception("reading followed keys failed")
