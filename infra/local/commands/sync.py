"""`farthing sync`: exchange events with another relay until both have the same (NIP-77).

Nothing is remembered between runs: the next run compares again, and finds what an interrupted run
has stored on both sides. Private kinds are left out on our side, as a relay leaves them out for
clients that have not logged in.
"""

import asyncio
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
from tqdm import tqdm

from farthing.context import Agent
from farthing.nostr.filters import Filter, parse_filter
from farthing.nostr.negentropy import SealedVector
from farthing.relay.members import find_members, seal_members
from farthing.settings import Settings
from infra.local.commands.bookkeeping import offline_agent
from infra.local.commands.exchange import (
    FETCH_AT_ONCE,
    SEND_AT_ONCE,
    Refusals,
    SyncFailed,
    Uploader,
    Uploads,
    compare,
    fetch,
    in_lots,
)
from infra.local.commands.relay_address import relay
from infra.local.commands.remote import Remote, RemoteFailed, connected
from infra.local.commands.sync_payer import PaymentLimits, SyncPayer, add_payment_arguments
from infra.local.commands.terminal import filter_json, plain
from infra.local.commands.transfer import Importer, ImportReport

_WITHOUT_END = sys.maxsize

ERRORS = (SyncFailed, RemoteFailed)


@dataclass
class SyncReport:
    ours: int = 0
    have: dict[bytes, None] = field(default_factory=dict)  # ids that the relay lacks
    need: dict[bytes, None] = field(default_factory=dict)  # ids that we lack
    rounds: int = 0
    fetched: int = 0
    withheld: Refusals = field(default_factory=Refusals)
    stored: ImportReport = field(default_factory=ImportReport)
    uploads: Uploads = field(default_factory=Uploads)
    traffic: tuple[int, int] = (0, 0)

    def lines(self) -> Iterator[tuple[str, str]]:
        yield "ours", f"{self.ours} events"
        yield "have", f"{len(self.have)} that the relay lacks"
        yield "need", f"{len(self.need)} that we lack"
        stored = self.stored
        yield (
            "downloaded",
            (
                f"{self.fetched}: {stored.stored} stored, {stored.duplicates} known,"
                f" {stored.superseded} superseded, {stored.deleted} deleted by their authors,"
                f" {stored.ephemeral} ephemeral, {stored.invalid} invalid"
            ),
        )
        yield from (("", reason) for reason in self.withheld)
        yield from (("", f"{number} {reason}") for reason, number in stored.reasons.items())
        yield "uploaded", str(self.uploads)
        yield from (("", reason) for reason in self.uploads.refused)
        sent, received = self.traffic
        yield "traffic", f"{self.rounds} rounds, {sent} bytes sent, {received} received"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("url", type=relay, help="WebSocket URL of the relay")
    parser.add_argument("--filter", default="{}", type=filter_json, help="a NIP-01 filter, as JSON")
    parser.add_argument(
        "--dir",
        choices=("down", "up", "both"),
        default="both",
        help="fetch the events that we lack, send those that the relay lacks, or both",
    )
    parser.add_argument("--dry-run", action="store_true", help="only show how many events differ")
    add_payment_arguments(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(arguments: Namespace, settings: Settings) -> int:
    filter = parse_filter(orjson.loads(arguments.filter))
    report = SyncReport()
    unlimited = replace(settings, max_scan=_WITHOUT_END, max_sync_events=_WITHOUT_END)
    try:
        with offline_agent(unlimited) as agent:
            asyncio.run(_Run(agent, arguments, filter, report).run())
    except KeyboardInterrupt:
        _print(report)
        print("farthing: interrupted; the next run goes on from here", file=sys.stderr)
        return 130
    except ERRORS:
        if report.rounds:  # else there is nothing to report
            _print(report)
        raise
    _print(report)
    return 0


def _print(report: SyncReport) -> None:
    for name, text in report.lines():
        print(f"{name:<12}{plain(text)}")


class _Run:
    def __init__(
        self, agent: Agent, arguments: Namespace, filter: Filter, report: SyncReport
    ) -> None:
        self._agent = agent
        self._filter = filter
        self._url: str = arguments.url
        self._down = arguments.dir in ("down", "both") and not arguments.dry_run
        self._up = arguments.dir in ("up", "both") and not arguments.dry_run
        self._quiet: bool = arguments.quiet
        self._report = report
        self._payer = SyncPayer(agent.settings, arguments.url, PaymentLimits.of(arguments))

    async def run(self) -> None:
        items = await asyncio.to_thread(
            lambda: seal_members(find_members(self._agent, [self._filter]), _WITHOUT_END)
        )
        self._report.ours = len(items)
        async with connected(self._url) as remote:
            try:
                await self._compare(remote, items)
                if self._down:
                    await self._download(remote)
                if self._up:
                    await self._upload(remote)
            finally:
                self._report.traffic = (remote.bytes_sent, remote.bytes_received)

    async def _compare(self, remote: Remote, items: SealedVector) -> None:
        report = self._report
        with self._bar("comparing", None, " rounds") as bar:
            async for have, need in compare(remote, self._filter, items):
                report.have.update(dict.fromkeys(have))
                report.need.update(dict.fromkeys(need))
                report.rounds += 1
                bar.update()

    async def _download(self, remote: Remote) -> None:
        report = self._report
        importer = Importer(self._agent)
        try:
            with self._bar("downloading", len(report.need), " events") as bar:
                for ids in in_lots(report.need, FETCH_AT_ONCE):
                    wanted = [event_id.hex() for event_id in ids]
                    lines = await fetch(remote, wanted, report.withheld)
                    report.fetched += len(lines)
                    await asyncio.to_thread(importer.store, lines, report.stored)
                    bar.update(len(ids))
        finally:
            await asyncio.to_thread(importer.close)

    async def _upload(self, remote: Remote) -> None:
        report = self._report
        uploader = Uploader(self._payer, report.uploads)
        with self._bar("uploading", len(report.have), " events") as bar:
            for ids in in_lots(report.have, SEND_AT_ONCE):
                stored = await asyncio.to_thread(
                    self._agent.events.get_many, [event_id.hex() for event_id in ids]
                )
                await uploader.publish(remote, stored)
                bar.update(len(ids))

    def _bar(self, name: str, total: int | None, unit: str) -> Any:
        return tqdm(desc=name, total=total, unit=unit, disable=self._quiet, file=sys.stderr)
