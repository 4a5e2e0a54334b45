"""The changes feed through the real server: whoever follows the numbers has everything, once."""

import asyncio
import json
import random
import signal
import subprocess
import sys
import threading
from itertools import islice
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from farthing.store.changes import ChangeLog
from farthing.store.sqlite import SqliteEngine
from tests.e2e.authors import Author
from tests.e2e.client import Background, RawClient
from tests.e2e.conftest import OPEN
from tests.e2e.relay_process import ROOT, RelayProcess, environment

WRITERS = 16
EVENTS = 1500
IN_FLIGHT = 20
SECONDS = 60

Entry = tuple[int, str]


async def publish(url: str, events: list[dict[str, Any]], acknowledged: set[str]) -> None:
    """One writer: its events with a few in flight, until they are through or the relay is gone."""
    waiting = iter(events)
    async with aiohttp.ClientSession() as session, session.ws_connect(url) as socket:
        try:
            for event in islice(waiting, IN_FLIGHT):
                await socket.send_json(["EVENT", event])
            left = len(events)
            while left:
                frame = await socket.receive_json()
                if frame[0] != "OK":
                    continue
                assert frame[2], frame
                acknowledged.add(frame[1])
                left -= 1
                for event in islice(waiting, 1):
                    await socket.send_json(["EVENT", event])
        except (aiohttp.ClientError, ConnectionError, TypeError):
            pass  # the relay was killed


def storm(number: int = EVENTS) -> list[list[dict[str, Any]]]:
    authors = [Author() for _ in range(WRITERS)]
    share = -(-number // WRITERS)
    return [[author.event(kind=1 + each % 2 * 6) for each in range(share)] for author in authors]


async def read_live(url: str, filter: dict[str, Any], enough: int) -> list[Entry]:
    """A client that connects once and waits."""
    entries: list[Entry] = []
    async with aiohttp.ClientSession() as session, session.ws_connect(url) as socket:
        await socket.send_json(["CHANGES", "live", {**filter, "live": True}])
        while len(entries) < enough:
            match await socket.receive_json():
                case ["CHANGES", "live", "EVENT", number, event]:
                    entries.append((number, event["id"]))
                case ["CHANGES", "live", "ERR", reason]:
                    raise AssertionError(reason)
    return entries


async def read_in_pieces(
    url: str, filter: dict[str, Any], enough: int, dice: random.Random
) -> list[Entry]:
    """A client whose connection is cut again and again, and which goes on from its checkpoint."""
    entries: list[Entry] = []
    checkpoint = 0
    async with aiohttp.ClientSession() as session:
        while len(entries) < enough:
            patience = dice.randint(1, 120)
            limit = {"limit": dice.randint(1, 80)} if dice.random() < 0.5 else {}
            live = {"live": dice.random() < 0.7}
            async with session.ws_connect(url) as socket:
                wanted = {**filter, **limit, **live, "since": checkpoint}
                await socket.send_json(["CHANGES", "s", wanted])
                while patience and len(entries) < enough:
                    patience -= 1
                    match await socket.receive_json():
                        case ["CHANGES", "s", "EVENT", number, event]:
                            entries.append((number, event["id"]))
                            checkpoint = number
                        case ["CHANGES", "s", "EOSE", _, {"truncated": True, "next": number}]:
                            assert number == checkpoint
                            break
                        case ["CHANGES", "s", "EOSE", number]:
                            checkpoint = number
                            if not live["live"]:
                                break
    return entries


def read_all(client: RawClient, filter: dict[str, Any] | None = None) -> list[Entry]:
    """What the feed holds now."""
    entries: list[Entry] = []
    since = 0
    while True:
        client.send("CHANGES", "all", {**(filter or {}), "since": since, "limit": 700})
        while (frame := client.wait_for("CHANGES", "all"))[2] == "EVENT":
            entries.append((frame[3], frame[4]["id"]))
        assert frame[2] == "EOSE", frame
        if len(frame) == 4:
            return entries
        since = frame[4]["next"]


def whole_log(relay: RelayProcess) -> list[Entry]:
    """Everything that was ever numbered, which must be without gaps; the relay ends for it."""
    assert relay.stop() == 0
    engine = SqliteEngine(relay.data)
    log = ChangeLog(engine)
    entries = [(entry.number, entry.id) for entry in log.between(0, log.counter())]
    engine.close()
    assert [number for number, _ in entries] == list(range(1, len(entries) + 1))
    assert len({id for _, id in entries}) == len(entries)
    return entries


def test_the_information_document_lists_the_changes_feed(
    relay: RelayProcess, background: Background
) -> None:
    async def ask() -> Any:
        headers = {"Accept": "application/nostr+json"}
        async with (
            aiohttp.ClientSession() as session,
            session.get(relay.http, headers=headers) as response,
        ):
            return await response.json(content_type=None)

    assert "CF" in background.run(ask())["supported_nips"]


def test_two_readers_and_sixteen_writers(start_relay, background: Background, connect) -> None:
    relay = start_relay(**OPEN)
    shares = storm()
    authors = {"authors": [share[0]["pubkey"] for share in shares]}
    wanted = sum(map(len, shares))
    acknowledged: set[str] = set()

    async def all_at_once() -> tuple[list[Entry], list[Entry]]:
        live, pieces, *_ = await asyncio.gather(
            read_live(relay.url, authors, wanted),
            read_in_pieces(relay.url, authors, wanted, random.Random(4)),
            *(publish(relay.url, share, acknowledged) for share in shares),
        )
        return live, pieces

    live, pieces = background.run(all_at_once(), SECONDS)

    assert live == pieces
    assert {id for _, id in live} == acknowledged
    assert len(acknowledged) == wanted
    assert [entry for entry in read_all(connect(relay)) if entry[1] in acknowledged] == live
    assert read_all(connect(relay), authors) == live
    assert set(live) <= set(whole_log(relay))


@pytest.mark.parametrize("strike", [signal.SIGKILL, signal.SIGTERM])
def test_numbers_outlive_a_kill(
    start_relay, background: Background, connect, strike: signal.Signals
) -> None:
    """In the middle of it all: no number is given twice or left out, and no event is forgotten."""
    relay = start_relay(**OPEN)
    shares = storm(800)
    acknowledged: set[str] = set()
    seen: list[Entry] = []

    async def until_struck() -> None:
        writers = [asyncio.create_task(publish(relay.url, share, acknowledged)) for share in shares]
        seen.extend(await read_live(relay.url, {"kinds": [1, 7]}, 250))
        relay.send_signal(strike)
        await asyncio.gather(*writers)

    background.run(until_struck(), SECONDS)
    relay.wait()

    again = start_relay(**OPEN)
    kinds = {"kinds": [1, 7]}  # and not the relay's own, which it replaces at each start
    background.run(read_live(again.url, kinds, len(acknowledged)), SECONDS)
    client = connect(again)
    entries = read_all(client, kinds)
    assert entries[: len(seen)] == seen
    assert acknowledged <= {id for _, id in entries}

    author = Author()
    client.store(*(author.event() for _ in range(5)))
    mine = background.run(read_live(again.url, {"authors": [author.pubkey]}, 5), SECONDS)
    assert min(number for number, _ in mine) > max(number for number, _ in entries)
    assert set(entries + mine) <= set(whole_log(again))


class Watching:
    """`farthing watch --changes` as a child process."""

    def __init__(self, relay: RelayProcess, folder: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", "infra.local", "watch", "--changes", "--relay", relay.url]
        self.process = subprocess.Popen(
            [*command, "--filter", '{"kinds": [1]}', *arguments],
            cwd=ROOT, env=environment(folder, {}), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self._hung = threading.Timer(SECONDS, self.process.kill)
        self._hung.start()
        self.numbers: list[int] = []

    def lines(self, number: int) -> list[str]:
        """The contents of the next few, whose numbers must ascend."""
        assert self.process.stdout is not None
        lines = [self.process.stdout.readline().rstrip("\n") for _ in range(number)]
        self.numbers += [int(line.partition("  ")[0]) for line in lines]
        assert self.numbers == sorted(set(self.numbers))
        return [line.rpartition("  ")[2] for line in lines]

    def interrupt(self) -> tuple[int, str]:
        """Ctrl-C: the exit code, and what was written beside the events."""
        self.process.send_signal(signal.SIGINT)
        _, beside = self.process.communicate()
        self._hung.cancel()
        return self.process.returncode, beside


def test_watching_goes_on_where_it_was(start_relay, connect, tmp_path: Path) -> None:
    relay = start_relay(**OPEN)
    client, author, file = connect(relay), Author(), tmp_path / "checkpoint"
    client.store(*(author.event(f"note-{number}") for number in range(1, 6)))
    numbers: list[int] = []
    while len(numbers) < 5:  # stored first, numbered after
        numbers = [number for number, _ in read_all(client, {"authors": [author.pubkey]})]

    watching = Watching(relay, tmp_path, "--since", str(numbers[1]), "--checkpoint", str(file))
    assert watching.lines(3) == ["note-3", "note-4", "note-5"]
    assert watching.numbers == numbers[2:]
    client.store(author.event("note-6"))
    assert watching.lines(1) == ["note-6"]
    # Cut off without a word, and back on the same port: it connects again by itself.
    relay.kill()
    restarted = RelayProcess(relay.data, **OPEN, port=relay.port).start()
    try:
        client = connect(restarted)
        client.store(author.event("note-7"))
        assert watching.lines(1) == ["note-7"]
        assert watching.interrupt()[0] == 0
        assert int(file.read_text()) >= watching.numbers[-1]

        client.store(author.event("not a note", kind=7), author.event("note-8"))
        watching = Watching(restarted, tmp_path, "--checkpoint", str(file))
        assert watching.lines(1) == ["note-8"]
        code, beside = watching.interrupt()
        assert (code, beside.count("Traceback")) == (0, 0)
    finally:
        restarted.kill()


def test_watching_follows_truncated_answers(start_relay, connect, tmp_path: Path) -> None:
    relay = start_relay(**OPEN, max_limit=3)
    client, author = connect(relay), Author()
    client.store(*(author.event(f"note-{number}") for number in range(10)))

    filter = json.dumps({"authors": [author.pubkey], "limit": 3})
    watching = Watching(relay, tmp_path, "--filter", filter)

    assert watching.lines(10) == [f"note-{number}" for number in range(10)]
    assert watching.interrupt()[0] == 0


def test_watching_an_absent_relay_fails_without_a_traceback(tmp_path: Path) -> None:
    nobody = RelayProcess(tmp_path / "data")
    nobody.welcome = {"relay": "ws://127.0.0.1:1"}
    watching = Watching(nobody, tmp_path)
    _, beside = watching.process.communicate()
    watching._hung.cancel()

    assert watching.process.returncode == 1
    assert "Traceback" not in beside
