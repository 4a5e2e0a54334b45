"""`farthing feed`: events of the keys that the owner follows, live, the newest last.

The command reads the relays of followed keys itself. It stores nothing and moves no checkpoint. A
key that is followed meanwhile is shown as well.
"""

import json
import threading
import time
from argparse import ArgumentParser, Namespace
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from farthing.agent.catching_up import AUTHORS_AT_ONCE
from farthing.agent.feeds import total_allowance
from farthing.agent.follows import followed, newest
from farthing.agent.intake import Intake
from farthing.agent.places import feed_places
from farthing.context import Agent
from farthing.nostr.events import Event
from farthing.nostr.kinds import Kind
from farthing.ports.relays import RelayFailed, RelaySession
from farthing.settings import Settings
from infra.local.commands.bookkeeping import ERRORS as ERRORS
from infra.local.commands.bookkeeping import BookkeepingError, offline_agent
from infra.local.commands.terminal import moment, plain, whole_number

_REMEMBERED = 20_000  # ids: an event comes from several relays
_LONGEST_NAME = 24
_RETRY_SECONDS = 5.0
_LOOK_SECONDS = 1.0  # between two looks at the follow list
_SHOWN = frozenset({1, 6, 7, 30023})


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--limit",
        type=whole_number,
        default=20,
        help="number of stored events to show first; %(default)s if left out",
    )
    parser.add_argument("--once", action="store_true", help="end after the stored events")
    parser.add_argument("--json", action="store_true", help="print whole events, one per line")


def run(arguments: Namespace, settings: Settings) -> int:
    if settings.follow_content == "off":
        raise BookkeepingError("FARTHING_FOLLOW_CONTENT is `off`: set it to `read` for a feed")
    with offline_agent(settings) as agent:
        places = feed_places(agent)
        if not followed(agent):
            raise BookkeepingError(
                "the follow list is empty: add a key with `farthing follow NPUB`"
            )
        if not places:
            raise BookkeepingError("no relay of the followed keys is known")
        feed = Feed(agent, arguments.json)
        try:
            listed = _follow_list(agent)
            feed.show(places, arguments.limit)
            while not arguments.once:
                time.sleep(_LOOK_SECONDS)
                if (current := _follow_list(agent)) != listed:
                    listed = current
                    feed.show(feed_places(agent), arguments.limit)
        except KeyboardInterrupt:
            pass
        finally:
            feed.stop()
    return 0


def _follow_list(agent: Agent) -> str:
    """The id of the owner's follow list."""
    follows = newest(agent, agent.settings.pubkey, Kind.FOLLOWS)
    return "" if follows is None else follows.id


@dataclass
class _Reader:
    """A thread that reads one relay."""

    url: str
    authors: Sequence[str]
    ready: threading.Event = field(default_factory=threading.Event)  # has what is stored there
    stopping: threading.Event = field(default_factory=threading.Event)


class Feed:
    """Reads each relay in a thread of its own, and prints each event once."""

    def __init__(self, agent: Agent, as_json: bool) -> None:
        self._agent = agent
        self._as_json = as_json
        self._lock = threading.Lock()
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._names: dict[str, tuple[int, str]] = {}
        self._held: list[Event] | None = None  # until new relays have sent what they have stored
        self._together = total_allowance(agent)
        self._readers: dict[str, _Reader] = {}
        self._kinds = sorted(agent.settings.follow_kinds & _SHOWN | {Kind.METADATA.value})

    def show(self, places: dict[str, list[str]], limit: int) -> None:
        """Read these relays and no others. Print the newest stored events of those that are new,
        oldest first, and then live events."""
        for reader in list(self._readers.values()):
            if places.get(reader.url) != reader.authors:
                reader.stopping.set()
                del self._readers[reader.url]
        new = [_Reader(url, places[url]) for url in places if url not in self._readers]
        for pubkey in {key for reader in new for key in reader.authors}:
            profile = newest(self._agent, pubkey, Kind.METADATA)
            if profile is not None:
                self._learn_name(profile)
        with self._lock:
            self._held = []
        for reader in new:
            self._readers[reader.url] = reader
            threading.Thread(target=self._read, args=(reader, limit), daemon=True).start()
        ends = time.monotonic() + self._agent.settings.gather_seconds
        for reader in new:
            reader.ready.wait(max(0.0, ends - time.monotonic()))
        with self._lock:
            held, self._held = self._held, None
            for event in sorted(held, key=lambda event: event.created_at)[-limit:]:
                self._print(event)

    def stop(self) -> None:
        for reader in self._readers.values():
            reader.stopping.set()

    def _read(self, reader: _Reader, limit: int) -> None:
        settings = self._agent.settings
        while not reader.stopping.is_set():
            intake = Intake(
                reader.authors, self._kinds, self._known, self._take, settings.max_feed_faults
            )
            try:
                with self._agent.relays.session(
                    reader.url, self._together.of(reader.url), settings.feed_seconds
                ) as session:
                    self._follow(session, intake, sorted(reader.authors), limit)
                    reader.ready.set()
                    while not reader.stopping.is_set():
                        session.wait()
                        intake.flush()
            except RelayFailed as error:
                if not reader.ready.is_set():
                    print(f"{plain(reader.url)} cannot be read: {plain(str(error))}", flush=True)
            reader.ready.set()
            reader.stopping.wait(_RETRY_SECONDS)

    def _follow(
        self, session: RelaySession, intake: Intake, authors: list[str], limit: int
    ) -> None:
        for at in range(0, len(authors), AUTHORS_AT_ONCE):
            some = authors[at : at + AUTHORS_AT_ONCE]
            live = {"authors": some, "kinds": self._kinds, "since": self._agent.now}
            session.subscribe(f"follow-{some[0][:16]}", [live], intake.offer)
            for filter in (
                {"authors": some, "kinds": [Kind.METADATA.value]},
                {"authors": some, "kinds": [each for each in self._kinds if each], "limit": limit},
            ):
                for value in session.read([filter]):
                    intake.offer(value)
        intake.flush()

    def _known(self, ids: Iterable[str]) -> set[str]:
        with self._lock:
            return {each for each in ids if each in self._seen}

    def _take(self, events: Sequence[Event]) -> int:
        with self._lock:
            for event in events:
                if event.id in self._seen:
                    continue
                self._seen[event.id] = None
                if len(self._seen) > _REMEMBERED:
                    self._seen.popitem(last=False)
                if event.kind == Kind.METADATA:
                    self._learn_name(event)
                elif self._held is not None:
                    self._held.append(event)
                else:
                    self._print(event)
        return len(events)

    def _learn_name(self, profile: Event) -> None:
        before = self._names.get(profile.pubkey, (-1, ""))[0]
        if profile.created_at > before:
            self._names[profile.pubkey] = profile.created_at, _name_in(profile.content)

    def _print(self, event: Event) -> None:
        if self._as_json:
            print(event.to_json(), flush=True)
            return
        name = self._names.get(event.pubkey, (0, ""))[1] or event.pubkey[:8]
        content = " ".join(plain(event.content).split())
        kind = "" if event.kind == 1 else f"(kind {event.kind}) "
        print(f"{moment(event.created_at)}  {name}: {kind}{content}", flush=True)


def _name_in(content: str) -> str:
    try:
        profile: Any = json.loads(content)
    except ValueError:
        return ""
    name = profile.get("display_name") or profile.get("name") if isinstance(profile, dict) else ""
    return plain(name).strip()[:_LONGEST_NAME] if isinstance(name, str) else ""
