"""Catching up with followed keys at another Farthing, by numbers, by sets and by pages, while 16
writers go on: events a second each, nothing lost, memory flat."""

import json
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from websockets.sync.client import connect

from farthing.agent import feeds
from farthing.agent.catching_up import Abilities
from farthing.agent.feeds import FollowedRelay, caching, total_allowance
from farthing.agent.relay_client import SocketRelays
from farthing.context import Agent
from farthing.nostr.events import public_key_of, sign_event
from farthing.nostr.filters import Filter
from farthing.ports.hosts import ANYWHERE
from farthing.settings import Settings
from farthing.store.feeds import FeedState
from farthing.store.sqlite import SqliteEngine
from infra.local.server.write_scheduler import WriteScheduler
from tests.bench.notes import author_secret
from tests.bench.result import Row, at_most
from tests.bench.worlds import OWNER, Sink
from tests.e2e.relay_process import ROOT, RelayProcess, environment

WAYS = {
    "changes": Abilities(changes=True, negentropy=True),
    "negentropy": Abilities(negentropy=True),
    "req": Abilities(),
}
WRITERS = 16
EVENTS = 100_000
_QUICK = 3000
_DAYS = 20
_WITHOUT_END = 10**9
# Above what a process has that takes in half as much. Both fill the store's cache of pages, which
# is 64 MB and most of what there is; a tenth would not fill it.
_GROWTH = 1.15


def run(quick: bool) -> list[Row]:
    number = _QUICK if quick else EVENTS
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder) / "small", Path(folder) / "large"
        with source(small, number // 2) as relay:
            base = {way: in_a_process(relay.url, way, small / way) for way in WAYS}
        with source(large, number) as relay:
            for way in WAYS:
                with writers(relay) as written:
                    found = in_a_process(relay.url, way, large / way)
                lost = lost_events(relay.url, way, large / way, number, written)
                rows += [
                    Row(f"follow: events a second by {way}", found["events"] / found["seconds"],
                        "/s", note=f"{found['events']} events, {WRITERS} writers beside"),
                    Row(f"follow: events lost by {way}", lost, "", target=at_most(0),
                        note=f"{len(written)} written meanwhile"),
                    Row(f"follow: memory by {way}", found["kb"] / 1024, "MB",
                        base[way]["kb"] / 1024, "for half of it", at_most(_GROWTH)),
                ]  # fmt: skip
    return rows


def keys() -> list[str]:
    return [public_key_of(author_secret(number)) for number in range(WRITERS)]


@contextmanager
def source(folder: Path, number: int) -> Iterator[RelayProcess]:
    """A relay with so many numbered notes of the writers, of the last days."""
    folder.mkdir()
    data, now, dice = folder / "source", int(time.time()), random.Random(number)
    lines = folder / "notes.jsonl"
    with lines.open("w") as file:
        for each in range(number):
            event = sign_event(
                author_secret(each % WRITERS), kind=1, content=f"note {each}",
                created_at=now - dice.randrange(_DAYS * 24 * 3600),
            )  # fmt: skip
            file.write(event.to_json() + "\n")
    open_to_all: dict[str, object] = {
        "price_per_byte": 0, "requests_per_second": 0, "address_messages_per_second": 0,
    }  # fmt: skip
    subprocess.run(
        [sys.executable, "-m", "infra.local", "import", "--quiet", str(lines)],
        cwd=ROOT, env=environment(data, open_to_all), check=True, capture_output=True,
    )  # fmt: skip
    relay = RelayProcess(data, **open_to_all).start()
    try:
        while _last_number(relay.url) < number:
            time.sleep(0.2)
        yield relay
    finally:
        relay.stop()


def _last_number(url: str) -> int:
    with connect(url, proxy=None) as socket:
        socket.send(json.dumps(["CHANGES", "last", {"since": 2**40, "kinds": [1]}]))
        while (frame := json.loads(socket.recv(30)))[0] != "CHANGES":
            pass
        return int(frame[3])


@contextmanager
def writers(relay: RelayProcess) -> Iterator[list[str]]:
    """All writers publish one note after another; the ids that the relay has taken."""
    written: list[str] = []
    stopping = threading.Event()

    def write(number: int) -> None:
        count = 0
        with connect(relay.url, proxy=None) as socket:
            while not stopping.is_set():
                count += 1
                event = sign_event(
                    author_secret(number), kind=1, content=f"{number} {count} {time.time()}",
                    created_at=int(time.time()),
                )  # fmt: skip
                socket.send(f'["EVENT",{event.to_json()}]')
                while (frame := json.loads(socket.recv(30)))[0] != "OK":
                    pass
                assert frame[2], frame
                written.append(event.id)
                stopping.wait(0.02)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    try:
        yield written
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


def in_a_process(url: str, way: str, data: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.follow", url, way, str(data)],
        cwd=ROOT, env=environment(data, {}), check=True, capture_output=True, text=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def lost_events(url: str, way: str, data: Path, number: int, written: list[str]) -> int:
    """After one more look, now that nobody writes."""
    look_in(url, way, data)
    stored = _stored(data)
    return len(set(written) - stored) + max(0, number - (len(stored) - len(set(written))))


def _stored(data: Path) -> set[str]:
    with _agent(data) as (agent, _):
        return {each.id for each in agent.reader.find(Filter(kinds=frozenset({1})))}


@contextmanager
def _agent(data: Path) -> Iterator[tuple[Agent, WriteScheduler]]:
    class Here:
        def put(self, call: Any) -> None:
            call()

    settings = Settings(
        secret_key=OWNER.hex(), follow_content="cache", max_feed_events=_WITHOUT_END,
        max_feed_bytes=_WITHOUT_END * 10, max_feed_total_bytes=_WITHOUT_END * 10,
        follow_bytes=_WITHOUT_END, max_scan=_WITHOUT_END, max_sync_events=_WITHOUT_END,
        feed_seconds=90,
    )  # fmt: skip
    engine = SqliteEngine(data)
    scheduler = WriteScheduler(Here())
    engine.park_in(scheduler)
    try:
        yield Agent(settings, engine, Sink(), relays=SocketRelays(ANYWHERE)), scheduler
    finally:
        scheduler.stop()
        engine.close()


def look_in(url: str, way: str, data: Path) -> dict[str, Any]:
    """Catch up in one way. How many events came, in which time, and the most memory."""
    with _agent(data) as (agent, scheduler):
        if way == "changes" and not agent.feeds.state(url).authors:
            # As if the relay had been empty when the keys were first followed.
            known = [key[:16] for key in keys()]
            agent.feeds.keep(FeedState(url, authors=known, time=1))
        before = agent.feeds.counts(url).stored
        reading = caching(agent, scheduler.run_all)
        relay = FollowedRelay(agent, url, keys(), reading, total_allowance(agent))
        started = time.perf_counter()
        with patch.object(feeds, "abilities_of", lambda *_: WAYS[way]):
            done = relay.look_in()
        seconds = time.perf_counter() - started
        state = agent.feeds.state(url)
        assert done and state.way == way, state
        events = agent.feeds.counts(url).stored - before
        return {"events": events, "seconds": seconds, "kb": _most_memory_kb()}


def _most_memory_kb() -> int:
    """Of this program alone: what `getrusage` says begins with what the parent had."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1])


if __name__ == "__main__":
    print(json.dumps(look_in(sys.argv[1], sys.argv[2], Path(sys.argv[3]))))
