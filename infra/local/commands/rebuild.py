"""`farthing routes rebuild`: run the Glue jobs on this machine. They compute routes and credit
limits from the events of the data folder or of a file. The agent of the data folder then uses
them."""

import gzip
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING

import orjson
from tqdm import tqdm

from farthing.context import Agent
from farthing.nostr.events import InvalidEvent, parse_event, verify
from farthing.nostr.filters import Filter
from farthing.nostr.kinds import Kind
from farthing.settings import Settings
from farthing.store.credits import CreditLimits
from farthing.store.routes import Generation, GenerationRefused, Route
from infra.local.commands.bookkeeping import offline_agent
from infra.local.commands.routes import hops
from infra.local.commands.spark import NoSpark, progress_bar, spark_session
from infra.local.commands.transfer import export_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_KINDS = frozenset({Kind.FOLLOWS.value, Kind.ILP_PEER_INFO.value, Kind.ROUTE_ANNOUNCEMENT.value})
_SHOWN = 10


class RebuildFailed(Exception):
    """No new routing table was made; the message says why."""


ERRORS = (RebuildFailed, NoSpark)


@dataclass(frozen=True)
class _Source:
    """Files for Spark. Events of a file from elsewhere were verified when it was copied; exports of
    a store hold events that were verified when they were stored."""

    path: str
    form: str
    lines: int
    invalid: int = 0


@dataclass(frozen=True)
class _Table:
    generation: Generation
    first: list[Route]  # those that are printed


def rebuild(arguments: Namespace, settings: Settings) -> int:
    shown = not arguments.quiet
    with TemporaryDirectory(prefix="farthing-routes-") as folder, offline_agent(settings) as agent:
        source = _source(arguments.input, settings, Path(folder), shown)
        with spark_session(source.lines) as spark:
            generation = _rebuild_routes(spark, agent, source, arguments, shown)
            credit = _rebuild_credit(spark, agent, source, shown)
    most = max(credit.values(), default=0)
    print(f"credit for {len(credit)} followed agents, at most {most} for one")
    _show(generation)
    return 0


def _source(given: Path | None, settings: Settings, folder: Path, shown: bool) -> _Source:
    target = folder / "events.jsonl"
    if given is None:
        data = Path(settings.data)
        lines = export_file(data, target, Filter(kinds=_KINDS), progress=shown)
        return _Source(str(target), "jsonl", lines)
    if not given.exists():
        raise RebuildFailed(f"there is no {given}")
    files = sorted(given.rglob("*")) if given.is_dir() else [given]
    files = [file for file in files if file.is_file() and file.name[0] not in "._"]
    if any(file.suffix == ".parquet" for file in files):
        return _Source(str(given), "parquet", sys.maxsize)
    if _is_export(files):
        data_files = [file for file in files if file.name.endswith(".json.gz")]
        return _Source(",".join(map(str, data_files)), "dynamodb", sys.maxsize)
    return _verified(files, target, shown)


def _is_export(files: list[Path]) -> bool:
    """Whether the files are an export of DynamoDB, which holds items instead of events."""
    for file in files:
        if file.name.endswith(".json.gz"):
            with _open(file) as lines:
                return lines.readline().startswith(b'{"Item":')
    return False


def _open(file: Path) -> IO[bytes]:
    return gzip.open(file) if file.suffix == ".gz" else file.open("rb")  # type: ignore[return-value]


def _verified(files: list[Path], target: Path, shown: bool) -> _Source:
    """Copy the events that count for routing, and check their signatures: a forged event in a file
    could claim somebody else's address."""
    lines = invalid = 0
    with target.open("wb") as out, tqdm(disable=not shown, unit=" events", file=sys.stderr) as bar:
        for line in (line for file in files for line in _lines(file)):
            bar.update()
            try:
                event = parse_event(orjson.loads(line))
                if event.kind in _KINDS:
                    verify(event)
            except (orjson.JSONDecodeError, InvalidEvent):
                invalid += 1
                continue
            if event.kind in _KINDS:
                out.write(line.strip() + b"\n")
                lines += 1
    return _Source(str(target), "jsonl", lines, invalid)


def _lines(file: Path) -> Iterator[bytes]:
    with _open(file) as lines:
        yield from (line for line in lines if line.strip())


def _events(spark: "SparkSession", source: _Source) -> "DataFrame":
    from glue_jobs.events_source import Format, read_events

    return read_events(spark, source.path.split(","), Format(source.form))


def _rebuild_routes(
    spark: "SparkSession", agent: Agent, source: _Source, arguments: Namespace, shown: bool
) -> _Table:
    from glue_jobs.generations import generation_name, route_of
    from glue_jobs.rebuild_routes import rebuild_from_events
    from glue_jobs.rules import Options

    name = generation_name(agent.now)
    options = Options(now=agent.now, generation=name, hop_limit=arguments.hops)
    with progress_bar("routes", shown) as progress:
        frame, report = rebuild_from_events(
            _events(spark, source), [agent.settings.pubkey], options, progress
        )
    report.malformed += source.invalid
    print("\n".join(report.lines()))
    try:
        generation = agent.routes.replace(
            name,
            map(route_of, frame.toLocalIterator()),
            agent.now,
            shrink_percent=agent.settings.max_shrink_percent,
            force=arguments.force,
        )
    except GenerationRefused as refused:
        raise RebuildFailed(
            f"{refused}; the old table stays in force, unless you use --force"
        ) from None
    return _Table(generation, list(islice(agent.routes.routes(name), _SHOWN)))


def _rebuild_credit(
    spark: "SparkSession", agent: Agent, source: _Source, shown: bool
) -> dict[str, int]:
    from glue_jobs.trust_scores import TrustRules, credit_of, trust_scores

    with progress_bar("trust", shown) as progress:
        scores = trust_scores(
            _events(spark, source),
            agent.settings.pubkey,
            agent.now,
            TrustRules(),
            progress,
        )
    credit = credit_of(scores)
    CreditLimits(agent.engine).replace(credit)
    return credit


def _show(table: _Table) -> None:
    name, count = table.generation.name, table.generation.count
    print(f"generation {name} is in force with {count} routes:")
    for route in table.first:
        print(f"  {route.prefix}  fee {route.fee}, {hops(route.hops)} by {route.next_hop[:16]}")
    if count > len(table.first):
        print(f"  and {count - len(table.first)} more: farthing routes")
