"""`farthing stream`: keep exchanging events with other relays until the command is stopped.

Streams are given on the command line or in a TOML file. Each has a checkpoint for every relay and
direction, so that the next run goes on where this one ended.
"""

import asyncio
import json
import signal
import sys
import tomllib
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from farthing.context import Agent
from farthing.nostr.filters import Filter, InvalidFilter, parse_filter
from farthing.settings import Settings
from infra.local.commands.bookkeeping import offline_agent
from infra.local.commands.relay_address import relay
from infra.local.commands.streaming import Down, RecentIds, Stream, Up
from infra.local.commands.sync_payer import PaymentLimits, SyncPayer, add_payment_arguments
from infra.local.commands.terminal import filter_json, plain
from infra.local.commands.transfer import Importer, NotImported

_DIRECTIONS = ("down", "up", "both")
_KEYS = {"urls", "dir", "filter", "token", "max_price", "max_total"}
_TELL_SECONDS = 5.0


class NoStreams(Exception):
    """No stream was given, or one that is not valid; the message says which."""


ERRORS = (NoStreams, NotImported)


@dataclass(frozen=True)
class StreamPlan:
    """The events to exchange with one relay, and the limits on payments."""

    url: str
    filter: Filter
    direction: str
    limits: PaymentLimits


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("urls", nargs="*", type=relay, help="WebSocket URLs of relays")
    parser.add_argument("--filter", default="{}", type=filter_json, help="a NIP-01 filter, as JSON")
    parser.add_argument(
        "--dir",
        choices=_DIRECTIONS,
        default="both",
        help="fetch the relays' events, send ours, or both",
    )
    parser.add_argument(
        "--config", type=Path, help="a TOML file with a table [streams.NAME] for each stream"
    )
    add_payment_arguments(parser)
    parser.add_argument("--quiet", action="store_true", help="print only the results at the end")


def run(arguments: Namespace, settings: Settings) -> int:
    plans = list(_plans(arguments))
    if not plans:
        raise NoStreams("expected URLs of relays, or --config with a file of streams; got neither")
    with offline_agent(settings) as agent:
        importer = Importer(agent)
        try:
            streams = asyncio.run(_run(agent, importer, plans, quiet=arguments.quiet))
        finally:
            importer.close()
    for stream in streams:
        print(plain(_line(stream)))
        for reason in stream.reasons:
            print(f"  {plain(reason)}")
    return 0


def _plans(arguments: Namespace) -> Iterator[StreamPlan]:
    filter = _checked(orjson.loads(arguments.filter))
    for url in dict.fromkeys(arguments.urls):
        yield StreamPlan(url, filter, arguments.dir, PaymentLimits.of(arguments))
    if arguments.config is not None:
        yield from read_plans(arguments.config)


def read_plans(path: Path) -> Iterator[StreamPlan]:
    """The streams of a TOML file, which has a table `[streams.NAME]` for each."""
    try:
        streams = tomllib.loads(path.read_text(encoding="utf-8")).get("streams", {})
    except ValueError as error:  # no TOML, or no UTF-8
        raise NoStreams(f"expected TOML in {path}: {error}") from None
    if not isinstance(streams, dict):
        raise NoStreams(f"expected tables [streams.NAME] in {path}")
    for name, table in streams.items():
        try:
            yield from _of_table(table)
        except (ValueError, ArgumentTypeError) as error:
            raise NoStreams(f"stream {name!r} in {path}: {error}") from None


def _of_table(table: object) -> Iterator[StreamPlan]:
    if not isinstance(table, dict):
        raise ValueError("expected a table")
    unknown = sorted(table.keys() - _KEYS)
    if unknown:
        raise ValueError(f"expected {', '.join(sorted(_KEYS))}, got {unknown[0]!r}")
    urls = table.get("urls")
    if not isinstance(urls, list) or not all(type(url) is str and url for url in urls):
        raise ValueError("urls: expected a list of ws:// or wss:// URLs")
    direction = table.get("dir", "both")
    if direction not in _DIRECTIONS:
        raise ValueError(f"dir: expected one of {', '.join(_DIRECTIONS)}, got {direction!r}")
    filter = _checked(json.loads(filter_json(json.dumps(table.get("filter", {})))))
    limits = _limits(table)
    yield from (StreamPlan(relay(url), filter, direction, limits) for url in dict.fromkeys(urls))


def _limits(table: Mapping[str, Any]) -> PaymentLimits:
    token = table.get("token", "")
    if type(token) is not str:
        raise ValueError("token: expected a string")
    amounts = [table.get(name) for name in ("max_price", "max_total")]
    for amount in amounts:
        if amount is not None and (type(amount) is not int or amount < 0):
            raise ValueError("max_price and max_total: expected whole numbers")
    return PaymentLimits(token, *amounts)


def _checked(value: object) -> Filter:
    filter = parse_filter(value)
    if filter.limit is not None:
        raise InvalidFilter("expected a filter without a limit, because a stream has no end")
    return filter


async def _run(
    agent: Agent, importer: Importer, plans: Sequence[StreamPlan], *, quiet: bool
) -> list[Stream]:
    streams = list(_streams(agent, importer, plans))
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    running = [asyncio.create_task(stream.stay()) for stream in streams]
    telling = asyncio.create_task(_tell(streams)) if not quiet else None
    stopping = asyncio.create_task(stopped.wait())
    everything = asyncio.gather(*running)
    ends: set[asyncio.Future[Any]] = {everything, stopping}
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if everything.done():
            everything.result()  # raise an error that a new connection would not help against
    finally:
        tasks = [*running, stopping, *([telling] if telling else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, everything, return_exceptions=True)
    return streams


def _streams(agent: Agent, importer: Importer, plans: Sequence[StreamPlan]) -> Iterator[Stream]:
    storing = asyncio.Lock()
    remembered: dict[str, RecentIds] = {}
    payers: dict[tuple[str, PaymentLimits], SyncPayer] = {}
    seen = set()
    for plan in plans:
        came = remembered.setdefault(plan.url, RecentIds())
        for direction in ("down", "up") if plan.direction == "both" else (plan.direction,):
            key = direction, plan.url, orjson.dumps(plan.filter.as_dict())
            if key in seen:  # two equal streams would move the same checkpoint
                continue
            seen.add(key)
            if direction == "down":
                yield Down(agent, plan.url, plan.filter, came, importer=importer, storing=storing)
                continue
            limited = plan.url, plan.limits
            if limited not in payers:
                payers[limited] = SyncPayer(agent.settings, plan.url, plan.limits)
            yield Up(agent, plan.url, plan.filter, came, payer=payers[limited])


async def _tell(streams: Sequence[Stream]) -> None:
    """Print changes to the terminal: a new state soon, figures from time to time."""
    told: dict[int, str] = {}
    states: dict[int, str] = {}
    beat = 0.25
    waited = 0.0
    while True:
        for position, stream in enumerate(streams):
            line = _line(stream)
            is_due = waited >= _TELL_SECONDS or states.get(position) != stream.state
            if is_due and told.get(position) != line:
                told[position], states[position] = line, stream.state
                print(plain(line), file=sys.stderr, flush=True)
        waited = 0.0 if waited >= _TELL_SECONDS else waited + beat
        await asyncio.sleep(beat)


def _line(stream: Stream) -> str:
    return f"{stream.direction:<5}{stream.url}  {stream.figures}; {stream.state}"
