"""The five walks of docs/design.md: the modules that each touches, and the moves between modules.

A move is a call from a function of one module to a function of another. Calls through other
projects' code, such as asyncio, count as if that code were not there. Moves above the table port
are shown apart, because a reader may stop at the port: an engine's commit is a story of its own.

The server records its own calls and is driven from outside, so older versions of the program can be
walked in the same way:

    python -m tests.bench.walks [--modules] [--json FILE]
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple
from unittest.mock import patch

import aiohttp

from farthing.settings import Settings
from tests.bench.forwarding import introduce
from tests.bench.notes import signed_notes
from tests.bench.paid import packets
from tests.e2e import relay_process
from tests.e2e.relay_process import ROOT, RelayProcess, environment

OURS = ("farthing.", "functions.", "infra.")
ENGINES = ("farthing.store.sqlite", "farthing.store.dynamodb")
SERVE = "--serve"
RECORDS = "WALKS_RECORDS"
_TOKEN = "bench-token-0123456789-abcdefghijklmnopqrstuvwxyz"
_SECONDS = 20.0
_GENERATOR = 0x20 | 0x80 | 0x200  # flags of code that is entered again


class Call(NamedTuple):
    """A call of a function of ours."""

    caller: str  # the module of the nearest function of ours on the stack; "" at its end
    callee: str
    function: str
    stack: list[str]  # the modules below, the nearest first

    @property
    def is_above_port(self) -> bool:
        return not any(module.startswith(ENGINES) for module in (self.callee, *self.stack))


class Walk(NamedTuple):
    name: str
    calls: Sequence[Call]

    @property
    def modules(self) -> list[str]:
        """In the order in which they are met."""
        return list(dict.fromkeys(call.callee for call in self.calls))

    @property
    def moves(self) -> int:
        return sum(1 for call in self.calls if call.caller and call.caller != call.callee)

    @property
    def above_port(self) -> "Walk":
        """The walk without what the engine of the table port does."""
        return Walk(self.name, [call for call in self.calls if call.is_above_port])


class Recorder:
    """Calls of functions of ours, in every thread."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.is_on = True

    def start(self) -> None:
        threading.setprofile(self.note)
        sys.setprofile(self.note)

    def stop(self) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def take(self) -> list[Call]:
        taken, self.calls = self.calls, []
        return taken

    def note(self, frame: FrameType, event: str, _argument: object) -> None:
        if event != "call" or not self.is_on:
            return
        callee = _module(frame)
        if callee is None or _is_resumed(frame):
            return
        stack: dict[str, None] = {}
        above = frame.f_back
        while above is not None:
            module = _module(above)
            if module is not None:
                stack[module] = None
            above = above.f_back
        caller = next(iter(stack), "")
        self.calls.append(Call(caller, callee, frame.f_code.co_qualname, list(stack)))


def _module(frame: FrameType) -> str | None:
    """The module of a function that we have written; None for one of others, or a generated one."""
    name = frame.f_globals.get("__name__", "")
    if not name.startswith(OURS) or frame.f_code.co_filename.startswith("<"):
        return None
    return str(name)


def _is_resumed(frame: FrameType) -> bool:
    """Whether the frame is of a generator or coroutine that goes on, instead of one that begins."""
    if not frame.f_code.co_flags & _GENERATOR:
        return False
    # Code begins with a few instructions that make the generator; what goes on is behind them.
    return frame.f_lasti > 8


# The server's side


def serve() -> None:
    """Run the server of this tree, and write what it has called when a signal asks for it."""
    recorder = Recorder()
    recorder.is_on = False  # until the first signal
    target = Path(os.environ[RECORDS])

    def write(*_: object) -> None:
        if not recorder.is_on:
            recorder.is_on = True
            sys.setprofile(recorder.note)  # of the main thread; while it imports, it would crawl
        part = target.with_suffix(".part")
        part.write_text(json.dumps(recorder.take()))
        part.rename(target)

    signal.signal(signal.SIGUSR1, write)
    threading.setprofile(recorder.note)
    sys.argv = ["farthing", "run"]
    sys.exit(import_module("infra.local.cli").main())


class RecordedRelay(RelayProcess):
    """A server that records its own calls."""

    def start(self) -> "RecordedRelay":
        with patch.object(relay_process, "launch", self._launch):
            super().start()
        return self

    def _launch(self, data: Path, settings: dict[str, object], log: Any) -> Any:
        self._records = data.parent / f"{data.name}.calls"
        return subprocess.Popen(
            [sys.executable, "-m", "tests.bench.walks", SERVE],
            cwd=ROOT, env={**environment(data, settings), RECORDS: str(self._records)},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip

    def take(self) -> list[Call]:
        """The calls since the last time."""
        self._records.unlink(missing_ok=True)
        self.send_signal(signal.SIGUSR1)
        until = time.monotonic() + _SECONDS
        while not self._records.exists():
            if time.monotonic() > until:
                raise AssertionError("the server has written no calls")
            time.sleep(0.01)
        return [Call(*call) for call in json.loads(self._records.read_text())]

    def take_all(self) -> list[Call]:
        """The calls since the last time, once no stream of the server has anything left to do."""
        calls: list[Call] = []
        while True:
            time.sleep(0.3)
            more = self.take()
            calls += more
            if not any(call.callee.startswith("farthing.relay.") for call in more):
                return calls


# The walks


@contextmanager
def relays(**settings: object) -> Iterator[tuple[RecordedRelay, RecordedRelay]]:
    given = {
        "peer_token": _TOKEN, "packets_per_minute": 10**9, "requests_per_second": 0,
        "upkeep_seconds": 0, "request_seconds": 0, "forward_fee": 0, "forward_fee_ppm": 0,
        **settings,
    }  # fmt: skip
    if hasattr(Settings, "sweep_seconds"):  # older versions have no sweeps
        given["sweep_seconds"] = 60  # a sweep would come into a walk
    with tempfile.TemporaryDirectory() as folder:
        end = RecordedRelay(Path(folder) / "end", ilp_address="g.agent.end", **given).start()
        hop = RecordedRelay(Path(folder) / "hop", ilp_address="g.agent.hop", **given).start()
        try:
            introduce(hop, end)
            yield hop, end
        finally:
            for relay in (hop, end):
                relay.stop()


def local_walks() -> list[Walk]:
    with relays(price_per_byte=10) as (hop, end):
        return asyncio.run(_drive(hop, end))


async def _drive(hop: RecordedRelay, end: RecordedRelay) -> list[Walk]:
    connector = aiohttp.TCPConnector(keepalive_timeout=600)
    async with aiohttp.ClientSession(connector=connector) as session:
        notes = signed_notes(10)
        prepares = packets(notes, end)
        url = f"{end.http}/ilp"
        for octets in prepares[:3]:  # what is loaded or cached with the first packets
            await _pay(session, url, octets)
        await _pay(session, f"{hop.http}/ilp", prepares[3])
        await _pay(session, f"{hop.http}/ilp", prepares[4])
        author = notes[0][0].pubkey
        reader = await session.ws_connect(end.url)
        for _ in range(2):
            await _request(reader, author)
        for relay in (hop, end):
            relay.take()
            relay.take_all()

        await _request(reader, author)
        requested = _walk_of(end.take_all(), "REQ on one machine", _REQUESTED)

        await _pay(session, url, prepares[5])  # connects; a peer's connection stays
        end.take_all()
        await _pay(session, url, prepares[6])
        calls = end.take_all()
        paid = _walk_of(calls, "paid packet to its FULFILL", _ANSWERED)
        screen = Walk("... and on to a subscriber's screen", _under(calls, _FAN_OUT))

        await _pay(session, f"{hop.http}/ilp", prepares[7])
        hop.take_all()
        await _pay(session, f"{hop.http}/ilp", prepares[8])
        forwarded = _walk_of(hop.take_all(), "forwarded packet", _ANSWERED)
        end.take_all()

        await reader.send_json(["CLOSE", "r"])
        await reader.send_json(["CHANGES", "c", {"live": True}])
        while (await reader.receive_json(timeout=_SECONDS))[:3] != ["CHANGES", "c", "EOSE"]:
            pass
        end.take_all()
        await _pay(session, url, prepares[9])
        pushed = Walk("live CHANGES push", _under(end.take_all(), _NUMBERING + _PUSH))
        await reader.close()
    return [requested, paid, screen, forwarded, pushed]


async def _pay(session: aiohttp.ClientSession, url: str, octets: bytes) -> None:
    headers = {"Authorization": f"Bearer {_TOKEN}", "Content-Type": "application/octet-stream"}
    async with session.post(url, data=octets, headers=headers) as response:
        body = await response.read()
        assert response.status == 200 and body[0] == 13, body  # a FULFILL


async def _request(reader: aiohttp.ClientWebSocketResponse, author: str) -> None:
    await reader.send_json(["REQ", "r", {"authors": [author], "limit": 10}])
    while (await reader.receive_json(timeout=_SECONDS))[0] != "EOSE":
        pass


_STREAMS = ("infra.local.server.streams", "infra.local.streams", "infra.local.server.outbox")
_FAN_OUT = ("farthing.relay.fan_out", "farthing.relay.fanout")
_NUMBERING = ("farthing.relay.sequence", "farthing.store.numbering")
_PUSH = ("farthing.relay.changes",)
_BESIDE = ("farthing.agent.",)
# The last function of a walk that ends with an answer.
_ANSWERED = "PacketConnection._answer"
_REQUESTED = "Connection.post_in_order"


def _is_of_streams(call: Call) -> bool:
    return call.callee in _STREAMS or any(module in _STREAMS for module in call.stack)


def _under(calls: Iterable[Call], modules: Sequence[str]) -> list[Call]:
    return [c for c in calls if c.callee in modules or any(each in modules for each in c.stack)]


def _walk_of(calls: Sequence[Call], name: str, last: str) -> Walk:
    """The calls up to the answer, without those of streams and of what the agent does by itself."""
    ends = [index for index, call in enumerate(calls) if call.function.endswith(last)]
    stop = ends[-1] + 1 if ends else len(calls)
    return Walk(name, [call for call in calls[:stop] if not _is_beside(call)])


def _is_beside(call: Call) -> bool:
    here = [call.callee, *call.stack]
    return any(module in _STREAMS or module.startswith(_BESIDE) for module in here)


def cloud_walk() -> Walk:
    """A REQ as Lambda calls its handler, over moto's DynamoDB."""
    from moto import mock_aws

    from tests.relay.world import Clock, MotoTables, aws_credentials, make_agent

    runtime = _first_module("farthing.handlers.runtime", "farthing.cloud.runtime")
    samples = ROOT / "events"
    recorder = Recorder()
    with aws_credentials(), mock_aws():
        tables, clock = MotoTables(), Clock()
        runtime.install(make_agent(tables.empty(clock), clock))
        try:
            call_handler("connect", samples)
            call_handler("req", samples)
            recorder.start()
            call_handler("req", samples)
            recorder.stop()
        finally:
            recorder.stop()
            runtime.install(None)
            tables.close()
    return Walk("REQ in the cloud", recorder.take())


def call_handler(name: str, samples: Path) -> None:
    handler: Callable[..., object] = import_module(f"functions.{name}.handler").handler
    handler(json.loads((samples / f"{name}.json").read_text()), None)


def _first_module(*names: str) -> Any:
    for name in names:
        with suppress(ModuleNotFoundError):
            return import_module(name)
    raise ModuleNotFoundError(names)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="The five walks.")
    parser.add_argument("--modules", action="store_true", help="list the modules of each walk")
    parser.add_argument("--json", type=Path, help="write every call to a file")
    options = parser.parse_args(arguments)
    first, *others = local_walks()
    walks = [first, cloud_walk(), *others]
    if options.json:
        options.json.write_text(json.dumps({walk.name: walk.calls for walk in walks}))
    for walk in walks:
        above = walk.above_port
        print(
            f"{walk.name:40} {len(walk.modules):3} modules {walk.moves:4} moves,"
            f" above the port {len(above.modules):3} modules {above.moves:4} moves"
        )
        if options.modules:
            print("    " + "\n    ".join(walk.modules))


if __name__ == "__main__":
    if sys.argv[1:] == [SERVE]:
        serve()
    else:
        main(sys.argv[1:])
