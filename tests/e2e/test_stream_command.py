"""`farthing stream`: a data folder in step with other relays, while servers run on both sides."""

import json
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.authors import Author
from tests.e2e.client import Background, RawClient
from tests.e2e.conftest import OPEN
from tests.e2e.fake_relay import Frame, Send, fake_relay
from tests.e2e.relay_process import ROOT, RelayProcess, environment
from tests.e2e.stores import exported_ids, farthing, import_events

NOTES = {"kinds": [1]}
FILTER = ("--filter", json.dumps(NOTES))
_SECONDS = 30

Start = Callable[..., RelayProcess]
Connect = Callable[..., RawClient]


class Streaming:
    """The command as a process; its progress is read as it comes."""

    def __init__(self, data: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "infra.local", "stream", *arguments],
            cwd=ROOT, env=environment(data, {}), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._lines.put(line)

    def wait_for(self, direction: str, state: str) -> str:
        while True:
            line = self._lines.get(timeout=_SECONDS)
            assert "Traceback" not in line
            if line.startswith(direction) and state in line:
                return line

    def stop(self) -> str:
        """What it prints at the end, after Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(_SECONDS) == 0
        assert self.process.stdout is not None
        return self.process.stdout.read()


@pytest.fixture
def stream() -> Iterator[Callable[..., Streaming]]:
    started: list[Streaming] = []

    def start(data: Path, *arguments: str) -> Streaming:
        started.append(Streaming(data, *arguments))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait()


Stream = Callable[..., Streaming]


def watching(client: RawClient) -> RawClient:
    client.request("new", {**NOTES, "limit": 0})
    return client


def wait_for_event(client: RawClient, event: dict[str, Any]) -> None:
    while client.wait_for("EVENT", "new")[2]["id"] != event["id"]:
        pass


def test_two_relays_stay_in_step_and_go_on_where_they_were(
    start_relay: Start, connect: Connect, stream: Stream, author: Author
) -> None:
    ours, theirs = start_relay("ours", **OPEN), start_relay("theirs", **OPEN)
    old_here, old_there = author.event(), author.event()
    connect(ours).publish(old_here)
    connect(theirs).publish(old_there)

    running = stream(ours.data, theirs.url, *FILTER)
    running.wait_for("down", "live")
    running.wait_for("up", "live")
    here, there = watching(connect(ours)), watching(connect(theirs))
    assert connect(ours).ids(NOTES) == connect(theirs).ids(NOTES)
    new_here, new_there, other_kind = author.event(), author.event(), author.event(kind=7)
    connect(ours).publish(other_kind)
    connect(ours).publish(new_here)
    wait_for_event(there, new_here)
    connect(theirs).publish(new_there)
    wait_for_event(here, new_there)
    assert "down " in running.stop()

    missed_here, missed_there = author.event(), author.event()
    connect(ours).publish(missed_here)
    connect(theirs).publish(missed_there)
    running = stream(ours.data, theirs.url, *FILTER)
    caught_up = re.search(r"(\d+) stored, (\d+) known", running.wait_for("down", "live"))
    assert caught_up is not None
    assert int(caught_up[1]) == 1
    assert int(caught_up[2]) <= 2  # what we have sent and what was last: not all over again
    assert " 1 sent, " in running.wait_for("up", "live")
    running.stop()
    everything = {
        each["id"] for each in (old_here, old_there, new_here, new_there, missed_here, missed_there)
    }
    assert exported_ids(ours.data, NOTES) == everything
    assert exported_ids(theirs.data, NOTES) == everything
    assert exported_ids(theirs.data, {"kinds": [7]}) == set()


def test_a_relay_that_was_away_is_found_again(
    start_relay: Start, connect: Connect, stream: Stream, author: Author, tmp_path: Path
) -> None:
    theirs = start_relay("theirs", **OPEN)
    file = tmp_path / "streams.toml"
    file.write_text(
        f'[streams.notes]\ndir = "down"\nurls = ["{theirs.url}"]\nfilter = {{ kinds = [1] }}\n'
    )
    running = stream(tmp_path / "ours", "--config", str(file))
    running.wait_for("down", "live")

    port = theirs.port
    theirs.stop()
    running.wait_for("down", "again in")
    theirs.settings["port"] = port
    theirs.start()
    event = author.event()
    connect(theirs).publish(event)

    running.wait_for("down", "1 stored")
    running.stop()
    assert exported_ids(tmp_path / "ours", NOTES) == {event["id"]}


def test_uploads_are_paid_within_the_budget(
    start_relay: Start, stream: Stream, author: Author, tmp_path: Path
) -> None:
    paid = start_relay(price_per_byte=10)
    events = [author.event() for _ in range(3)]
    import_events(tmp_path / "ours", events)
    token = (paid.data / "peer-token").read_text().strip()
    up = (tmp_path / "ours", paid.url, "--dir", "up", *FILTER, "--token", token)

    assert "too expensive: the relay asks" in _end(stream(*up, "--max-price", "10"), "live")
    assert exported_ids(paid.data, NOTES) == set()

    import_events(tmp_path / "others", events)
    others = (tmp_path / "others", *up[1:])
    assert "ended: budget spent" in _end(stream(*others, "--max-total", "5000"), "ended")
    some = exported_ids(paid.data, NOTES)
    assert len(some) < 3
    assert "live" in _end(stream(*others), "live")  # the checkpoint has not passed the others
    assert exported_ids(paid.data, NOTES) == {event["id"] for event in events}
    assert "0 differences" in farthing(paid.data, "audit").stdout


def _end(running: Streaming, state: str) -> str:
    if state == "ended":  # by itself
        assert running.process.wait(_SECONDS) == 0
        assert running.process.stdout is not None
        return running.process.stdout.read()
    running.wait_for("up", state)
    return running.stop()


def test_a_relay_with_neither_numbers_nor_negentropy_is_read_by_pages(
    background: Background, stream: Stream, author: Author, tmp_path: Path
) -> None:
    old, live, unasked = author.event(), author.event(), author.event(kind=7)
    asked: list[dict[str, Any]] = []

    async def script(frame: Frame, send: Send) -> None:
        if frame[0] != "REQ":
            return
        asked.append(frame[2])
        if frame[1] == "farthing-page":
            first = sum("limit" in each for each in asked) == 1
            for event in (old, unasked) if first else ():
                await send("EVENT", frame[1], event)
        else:
            await send("EVENT", frame[1], live)
        await send("EOSE", frame[1])

    with fake_relay(background, script) as url:
        running = stream(tmp_path / "ours", url, "--dir", "down", *FILTER)
        running.wait_for("down", "live")
        running.stop()

    assert exported_ids(tmp_path / "ours", {}) == {old["id"], live["id"]}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "expected URLs of relays, or --config"),
        (("ws://localhost", "--filter", '{"limit":1}'), "expected a filter without a limit"),
    ],
)
def test_what_cannot_be_streamed_is_said(
    tmp_path: Path, arguments: tuple[str, ...], expected: str
) -> None:
    done = farthing(tmp_path / "ours", "stream", *arguments)
    assert done.returncode == 1
    assert expected in done.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[streams.a]\nurl = []", "expected dir, filter"),
        ('[streams.a]\nurls = ["http:/"]', "expected a ws:// or wss:// URL"),
        ('[streams.a]\nurls = []\ndir = "sideways"', "dir: expected one of down, up, both"),
        ("[streams.a]\nurls = []\nmax_price = 1.5", "expected whole numbers"),
        ("streams =", "expected TOML"),
    ],
)
def test_a_file_that_cannot_be_understood_is_refused(
    tmp_path: Path, text: str, expected: str
) -> None:
    from infra.local.commands.stream import NoStreams, read_plans

    file = tmp_path / "streams.toml"
    file.write_text(text)
    with pytest.raises(NoStreams, match=expected):
        list(read_plans(file))
