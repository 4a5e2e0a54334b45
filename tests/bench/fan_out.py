"""Fan-out: what an event costs that ten subscriptions want, among a thousand and among a hundred
thousand. The stream handler runs in this process; what its clients do is not part of it."""

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from farthing.context import Agent
from farthing.handlers import runtime
from farthing.nostr.events import Event
from farthing.nostr.filters import parse_filter
from farthing.store.events import event_item
from farthing.store.sqlite_outbox import OutboxChange
from farthing.store.streams import records_of
from farthing.store.subscriptions import Subscription
from farthing.store.table import Table
from functions.fanout.handler import handler
from infra.costs.counting import Cost, CountingEngine
from tests.bench.result import Row, at_most
from tests.bench.worlds import Sink, world

FEW = 1000
MANY = 100_000
MATCHING = 10
RATIO = 2
_PER_CONNECTION = 20
_FOLLOWED = 5
_ARN = "arn:aws:dynamodb:local:000000000000:table/farthing-"
_AUTHOR, _ROOT, _MENTIONED = ("a" * 64, "b" * 64, "c" * 64)

Filter = dict[str, Any]

# What clients ask for: an author, a feed, replies, mentions, a topic, a kind from now on.
WANTED: Sequence[Filter] = (
    {"authors": [_AUTHOR]},
    {"authors": [_AUTHOR], "kinds": [1, 6, 7]},
    {"authors": [_AUTHOR], "kinds": [1], "since": 1_700_000_000},
    {"authors": ["d" * 64, _AUTHOR], "kinds": [1]},
    {"#e": [_ROOT]},
    {"#e": [_ROOT], "kinds": [1]},
    {"#p": [_MENTIONED]},
    {"#p": [_MENTIONED], "kinds": [1, 7]},
    {"kinds": [1], "since": 1_700_000_000},
    {"since": 1_700_000_000},
)
assert len(WANTED) == MATCHING


def unwanted(randomness: random.Random) -> Iterator[Filter]:
    """The same kinds of filters, by others and about others."""

    def hex64() -> str:
        return randomness.randbytes(32).hex()

    while True:
        yield {"authors": [hex64()], "kinds": [1]}
        yield {"authors": [hex64() for _ in range(_FOLLOWED)], "kinds": [1, 6]}
        yield {"#e": [hex64()], "kinds": [1, 7]}
        yield {"#p": [hex64()]}
        yield {"#t": [f"topic {randomness.randrange(10**6)}"], "kinds": [1]}
        yield {"ids": [hex64()]}
        yield {"kinds": [randomness.randrange(30000, 40000)]}


def run(quick: bool) -> list[Row]:
    many, turns = (20_000, 200) if quick else (MANY, 2000)
    with ExitStack() as stack:
        agents = {number: _subscribed(stack, number, counting=False) for number in (FEW, many)}
        cpu = _cpu_in_turns(agents, turns)
        costs = {number: _cost(_subscribed(stack, number, counting=True)) for number in (FEW, many)}
    label = f"ten of {many:,} subscriptions against ten of {FEW:,}"
    few, most = costs[FEW], costs[many]
    return [
        Row("fan-out: CPU an event", cpu[many], "µs", cpu[FEW], "µs", at_most(RATIO), label),
        Row("fan-out: requests an event", most.requests, "", few.requests, "", at_most(RATIO)),
        Row("fan-out: read units an event", most.read_units, "", few.read_units, "",
            at_most(RATIO)),
        Row("fan-out: round trips an event", most.round_trips, "", few.round_trips, "",
            at_most(RATIO)),
    ]  # fmt: skip


def _subscribed(stack: ExitStack, number: int, *, counting: bool) -> Agent:
    agent = stack.enter_context(world(counting=counting))
    others = unwanted(random.Random(number))
    filters = [*WANTED, *(next(others) for _ in range(number - MATCHING))]
    for each, filter in enumerate(filters):
        connection_id, name = divmod(each, _PER_CONNECTION)
        parsed = [parse_filter(filter)]
        agent.subscriptions.subscribe(
            Subscription(f"connection-{connection_id}", f"s{name}", 1, parsed), agent.now
        )
    return agent


def _cpu_in_turns(agents: dict[int, Agent], turns: int) -> dict[int, float]:
    """Microseconds of CPU that an event takes on its way through the handler."""
    spent = dict.fromkeys(agents, 0.0)
    for turn in range(turns):
        batch = _records(turn)
        for number, agent in agents.items():
            runtime.install(agent)
            started = time.process_time()
            failures = handler(batch, None)["batchItemFailures"]
            spent[number] += time.process_time() - started
            assert not failures
    runtime.install(None)
    for agent in agents.values():
        assert isinstance(agent.connections, Sink)
        assert agent.connections.frames == MATCHING * turns
    return {number: seconds / turns * 1e6 for number, seconds in spent.items()}


def _records(number: int) -> dict[str, Any]:
    tags = (("e", _ROOT), ("p", _MENTIONED))
    identity = random.Random(number).randbytes(32).hex()
    event = Event(identity, _AUTHOR, 1_750_000_000 + number, 1, tags, "a reply", "0" * 128)
    change = OutboxChange(number, Table.EVENTS, event.id, "e", None, event_item(event, 0))
    return records_of([change], _ARN)


def _cost(agent: Agent) -> Cost:
    assert isinstance(agent.engine, CountingEngine)
    agent.engine.reset()
    runtime.install(agent)
    handler(_records(0), None)
    runtime.install(None)
    return agent.engine.reset()
