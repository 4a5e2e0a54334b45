"""REQ: the time to the last of 100 stored events, among ten thousand and among a million."""

import os
import random
import shutil
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import quantiles
from typing import Any

import orjson

from tests.bench.result import Row, at_most
from tests.bench.stored import author, authors_in, mentioned, stored_folder
from tests.bench.wire import PING, PONG, FrameReader, masked_frame, upgrade_request
from tests.e2e.relay_process import RelayProcess

FEW = 10_000
MANY = 1_000_000
RESULTS = 100
RATIO = 1.5
# Each of the server's threads has a cache of its own: a million events take 200 requests to fill
# them, which are twice as slow.
_WARM_UP = 300

Filter = dict[str, Any]

FILTERS: dict[str, Callable[[int], Filter]] = {
    "author+kinds": lambda who: {"authors": [author(who)], "kinds": [1]},
    "tag": lambda who: {"#p": [mentioned(who)]},
    "kind": lambda _: {"kinds": [1]},
    "empty": lambda _: {},
}


class Client:
    """One blocking connection, one REQ at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(upgrade_request("127.0.0.1", port))
        while not self._socket.recv(65536).endswith(b"\r\n\r\n"):
            pass
        self._frames = FrameReader()

    def time_req(self, filter: Filter) -> float:
        """Seconds from REQ to EOSE."""
        request = masked_frame(orjson.dumps(["REQ", "bench", filter]))
        events, ended = 0, False
        started = time.perf_counter()
        self._socket.sendall(request)
        while not ended:
            for opcode, payload in self._frames.feed(self._socket.recv(1 << 20)):
                if opcode == PING:
                    self._socket.sendall(masked_frame(payload, PONG))
                events += payload.startswith(b'["EVENT"')
                ended = ended or payload.startswith((b'["EOSE"', b'["CLOSED"'))
        taken = time.perf_counter() - started
        assert events == RESULTS, f"{events} events for {filter}"
        self._socket.sendall(masked_frame(b'["CLOSE","bench"]'))
        return taken

    def close(self) -> None:
        self._socket.close()


def run(quick: bool) -> list[Row]:
    many, turns = (100_000, 100) if quick else (MANY, 1000)
    with tempfile.TemporaryDirectory() as folder:
        relays = {}
        for number in (FEW, many):
            relays[number] = _serve(number, Path(folder) / str(number))
        try:
            return [row for name in FILTERS for row in _compare(name, relays, turns)]
        finally:
            for relay in relays.values():
                relay.stop()
                relay.check_log()


def _serve(number: int, folder: Path) -> RelayProcess:
    # A copy, which takes seconds: a server leaves marks in its folder.
    shutil.copytree(stored_folder(number), folder)
    os.sync()  # or the disk would be busy with it beside the first requests
    return RelayProcess(folder, price_per_byte=0, requests_per_second=0).start()


def _compare(name: str, relays: dict[int, RelayProcess], turns: int) -> list[Row]:
    """In turns, so that a busy machine slows both."""
    randomness = random.Random(name)
    clients = {number: Client(relay.port) for number, relay in relays.items()}
    times: dict[int, list[float]] = {number: [] for number in clients}
    for turn in range(_WARM_UP + turns):
        for number, client in clients.items():
            who = randomness.randrange(authors_in(number))
            taken = client.time_req({**FILTERS[name](who), "limit": RESULTS})
            if turn >= _WARM_UP:
                times[number].append(taken * 1000)
    for client in clients.values():
        client.close()
    few, many = ({50: cuts[49], 99: cuts[98]} for cuts in map(_percentiles, times.values()))
    label = f"{max(relays):,} against {min(relays):,} events"
    return [
        Row(f"req: {name}, p{cut}", many[cut], "ms", few[cut], "ms", at_most(RATIO),
            label if cut == 50 and name == next(iter(FILTERS)) else "")
        for cut in (50, 99)
    ]  # fmt: skip


def _percentiles(times: list[float]) -> list[float]:
    return quantiles(times, n=100, method="inclusive")
