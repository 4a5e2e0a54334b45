"""`farthing report`: what the relay stored and earned, as one HTML page. Runs the Glue job on this
machine, on the data folder."""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson

from farthing.aether.filters import Filter as AetherFilter
from farthing.context import Agent
from farthing.nostr.filters import Filter
from farthing.settings import Settings
from farthing.store.purses import reference_of
from farthing.store.spaces import AETHER
from infra.local.commands.bookkeeping import offline_agent
from infra.local.commands.spark import NoSpark, spark_session
from infra.local.commands.terminal import whole_number
from infra.local.commands.transfer import export_file

ERRORS = (NoSpark,)
_NANOSECONDS = 10**9
_DAY = 24 * 3600


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("report.html"),
        help="file to write; %(default)s if left out",
    )  # fmt: skip
    parser.add_argument(
        "--days", type=whole_number, default=30,
        help="days to report, today included; %(default)s if left out",
    )  # fmt: skip
    parser.add_argument("--parquet", type=Path, help="folder to write the figures to, as Parquet")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(arguments: Namespace, settings: Settings) -> int:
    with TemporaryDirectory(prefix="farthing-report-") as folder, offline_agent(settings) as agent:
        since = (agent.now // _DAY - arguments.days + 1) * _DAY
        events, receipts = Path(folder, "events.jsonl"), Path(folder, "receipts.jsonl")
        lines = export_file(
            Path(settings.data), events, Filter(since=since), progress=not arguments.quiet
        )
        aether = Path(folder, "aether.jsonl")
        lines += export_file(
            Path(settings.data), aether, AetherFilter(since=since * _NANOSECONDS),
            progress=not arguments.quiet, space=AETHER,
        )  # fmt: skip
        lines += _write_receipts(agent, receipts, since)
        page = _page(agent, (events, aether), receipts, lines, arguments)
    arguments.output.write_text(page)
    print(f"{arguments.output}: {lines} events and receipts of {arguments.days} days")
    return 0


def _write_receipts(agent: Agent, target: Path, since: int) -> int:
    number = 0
    with target.open("wb") as file:
        for peer in agent.ledger.account_ids():
            for receipt in agent.ledger.receipts(peer):
                if receipt.time >= since:
                    file.write(orjson.dumps(receipt.item()) + b"\n")
                    number += 1
        for purse in agent.purses.all():
            for movement in agent.purses.movements(purse.key):
                if movement.time_ms >= since * 1000:
                    item = {**movement.item(), "pk": reference_of(purse.key)}
                    file.write(orjson.dumps(item) + b"\n")
                    number += 1
    return number


def _page(
    agent: Agent,
    exports: tuple[Path, Path],
    receipts: Path,
    lines: int,
    arguments: Namespace,
) -> str:
    events, aether = map(str, exports)
    settings = agent.settings
    with spark_session(lines) as spark:
        from glue_jobs.events_source import Format, read_aether_events, read_events
        from glue_jobs.relay_report import read_receipts, relay_report

        print("counting ...", file=sys.stderr)
        made = relay_report(
            read_events(spark, [events], Format.JSONL),
            read_receipts(spark, [str(receipts)], Format.JSONL),
            agent.now,
            name=settings.name,
            unit=f"units of 10⁻{_raised(settings.asset_scale)} {settings.asset_code}",
            days=arguments.days,
            aether=read_aether_events(spark, [aether], Format.JSONL),
        )
        if arguments.parquet:
            made.write_parquet(str(arguments.parquet))
        return made.page


def _raised(number: int) -> str:
    return str(number).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
