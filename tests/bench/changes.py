"""The changes feed: numbering, what it costs, the way from OK to a live reader, and reading one
author's changes out of a short log and out of a long one."""

import asyncio
import json
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import aiohttp

from farthing.context import Agent
from farthing.nostr.events import Event
from farthing.relay.sequence import number_events
from farthing.store.changes import MOST_AT_ONCE, Arrival, ChangeLog
from farthing.store.events import event_item
from farthing.store.table import Put, Table, TransactWrite
from infra.costs.counting import CountingEngine
from tests.bench.notes import signed_notes
from tests.bench.result import Row, at_most
from tests.bench.worlds import Client, Sink, world
from tests.e2e.relay_process import RelayProcess
from tests.store.faulty import FaultyEngine

FEW = 20_000
MANY = 1_000_000
CHANGES = 10_000  # of the one author, in either log
RATIO = 1.5
WRITE_UNITS = 6
_RECORDS = 100  # that a stream brings at once
_AUTHOR = "a" * 64
_TURNS = 5
_COMMITS_AT_ONCE = 1000


def run(quick: bool) -> list[Row]:
    return [*_numbering(quick), *_from_ok_to_push(quick), *_one_author(quick)]


def _arrivals(number: int, seed: int = 0) -> list[Arrival]:
    dice = random.Random(seed)
    authors = [dice.randbytes(32).hex() for _ in range(1000)]
    return [Arrival(dice.randbytes(32).hex(), dice.choice(authors), 1) for _ in range(number)]


# Numbering


def _numbering(quick: bool) -> list[Row]:
    arrivals = _arrivals(3000 if quick else 20_000)
    with world(counting=False) as agent:
        started = time.perf_counter()
        for first in range(0, len(arrivals), _RECORDS):
            number_events(agent, arrivals[first : first + _RECORDS])
        rate = len(arrivals) / (time.perf_counter() - started)
    full = _arrivals(20 * MOST_AT_ONCE)
    with world(counting=True) as agent:
        assert isinstance(agent.engine, CountingEngine)
        agent.engine.reset()
        number_events(agent, full)
        cost = agent.engine.reset()
    note = f"{MOST_AT_ONCE} events a commit, {cost.read_units / len(full):.3f} read units an event"
    return [
        Row("changes: events numbered a second", rate, "/s"),
        Row("changes: write units a numbered event", cost.write_units / len(full), "",
            target=at_most(WRITE_UNITS), note=note),
    ]  # fmt: skip


# The local runtime


def _from_ok_to_push(quick: bool) -> list[Row]:
    notes = [event for event, _ in signed_notes(200 if quick else 2000)]
    with tempfile.TemporaryDirectory() as folder:
        relay = RelayProcess(Path(folder) / "data", price_per_byte=0, requests_per_second=0).start()
        try:
            seconds = asyncio.run(_watch_and_publish(relay.url, notes))
        finally:
            relay.stop()
    cuts = quantiles(seconds, n=100)
    return [
        Row("changes: OK to live push, p50", cuts[49] * 1000, "ms", note="one event at a time"),
        Row("changes: OK to live push, p99", cuts[98] * 1000, "ms"),
    ]


async def _watch_and_publish(url: str, notes: Sequence[Event]) -> list[float]:
    acknowledged: dict[str, float] = {}
    pushed: dict[str, float] = {}
    async with aiohttp.ClientSession() as session:
        reader, writer = await session.ws_connect(url), await session.ws_connect(url)
        await reader.send_json(["CHANGES", "live", {"kinds": [1], "live": True}])
        while (await reader.receive_json())[:3] != ["CHANGES", "live", "EOSE"]:
            pass

        async def read() -> None:
            while len(pushed) < len(notes):
                match await reader.receive_json():
                    case ["CHANGES", "live", "EVENT", _, event]:
                        pushed[event["id"]] = time.perf_counter()

        reading = asyncio.create_task(read())
        for note in notes:
            await writer.send_str(f'["EVENT",{note.to_json()}]')
            while (await writer.receive_json())[0] != "OK":
                pass
            acknowledged[note.id] = time.perf_counter()
        await reading
        await reader.close()
        await writer.close()
    return [max(0.0, pushed[id] - moment) for id, moment in acknowledged.items()]


# One author among many


class _Bulk(FaultyEngine):
    """Commits of the log, a thousand at once: alone in the file, nobody sees the difference."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._commits: list[Sequence[TransactWrite]] = []

    def transact(self, writes: Sequence[TransactWrite]) -> None:
        self._commits.append(writes)
        if len(self._commits) == _COMMITS_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        puts = {write[:3]: write._replace(condition=None) for commit in self._commits
                for write in commit if isinstance(write, Put)}  # fmt: skip
        # In the order of the keys: each page is then changed once.
        self.inner.write_batch([puts[key] for key in sorted(puts)])
        self._commits.clear()


def _fill(agent: Agent, entries: int) -> None:
    """A log in which the author has every n-th entry, `CHANGES` in all."""
    bulk = _Bulk(agent.engine)
    log, dice, step = ChangeLog(bulk), random.Random(entries), entries // CHANGES
    last, events = 0, []
    others = _arrivals(1000, entries)
    while last < entries:
        batch = []
        for number in range(last, min(last + MOST_AT_ONCE, entries)):
            id = dice.randbytes(32).hex()
            mine = number % step == 0
            batch.append(Arrival(id, _AUTHOR if mine else dice.choice(others).pubkey, 1))
            if mine:
                content = f"change {number}, as long as notes are, or thereabouts, on most days"
                events.append(Event(id, _AUTHOR, 1_700_000_000, 1, (), content, "0" * 128))
        last += log.append(last, batch)
    bulk.flush()
    puts = [Put(Table.EVENTS, event.id, "e", event_item(event, 0)) for event in events]
    agent.engine.write_batch(puts)


def _one_author(quick: bool) -> list[Row]:
    many = 100_000 if quick else MANY
    with ExitStack() as stack:
        agents = {number: stack.enter_context(world(counting=False)) for number in (FEW, many)}
        for number, agent in agents.items():
            _fill(agent, number)
        units = {number: _units(agent) for number, agent in agents.items()}
        turns = [
            {number: _seconds(agent) for number, agent in agents.items()} for _ in range(_TURNS)
        ]
    times = {number: median(turn[number] for turn in turns) * 1000 for number in agents}
    label = f"{CHANGES:,} changes of one author out of {many:,} against out of {FEW:,}"
    return [
        Row("changes: one author, read units", units[many], "", units[FEW], "", at_most(RATIO),
            label),
        Row("changes: one author, time", times[many], "ms", times[FEW], "ms", at_most(RATIO)),
    ]  # fmt: skip


def _read(agent: Agent) -> Callable[[], None]:
    sink = Sink()
    client = Client(replace(agent, connections=sink))

    def read() -> None:
        before = sink.frames
        answer = client.send("CHANGES", "s", {"authors": [_AUTHOR]})
        assert answer[2] == "EOSE" and len(answer) == 4, json.dumps(answer)
        assert sink.frames - before == CHANGES

    return read


def _seconds(agent: Agent) -> float:
    read = _read(agent)
    started = time.perf_counter()
    read()
    return time.perf_counter() - started


def _units(agent: Agent) -> int:
    engine = CountingEngine(agent.engine)
    read = _read(replace(agent, engine=engine))
    engine.reset()
    read()
    return engine.reset().read_units
