"""`farthing sync`: make the data folder and another relay have the same events (NIP-77).

Nothing is remembered between runs: what an interrupted one has stored is no longer a difference to
the next. Private kinds are left out on our side, as they are on that of a relay which does not know
us.
"""

import asyncio
import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import orjson
from tqdm import tqdm

from farthing.context import Agent
from farthing.nostr.filters import Filter, parse_filter
from farthing.nostr.negentropy import Initiator, InvalidMessage, SealedVector
from farthing.nostr.sync import SyncError
from farthing.relay.members import find_members, seal_members
from farthing.settings import Settings
from farthing.store.events import StoredEvent
from infra.local.commands.bookkeeping import offline_agent
from infra.local.commands.remote import Remote, RemoteFailed, connected
from infra.local.commands.sync_payer import SyncPayer
from infra.local.commands.terminal import filter_json, plain
from infra.local.commands.transfer import Importer, ImportReport

_SYNC = "farthing-sync"
_FETCH = "farthing-fetch"
# In hex twice that. A relay behind API Gateway is disconnected by a frame of more than 32 KB.
_FRAME = 16_000
_FETCH_AT_ONCE = 250  # below the number of events that relays send for one filter
_SEND_AT_ONCE = 100
_PAUSES = (1, 2, 4, 8, 16, 30)  # seconds, where the relay says rate-limited
_WITHOUT_END = sys.maxsize
_PAYABLE = ("restricted", "payment-required")


class SyncFailed(Exception):
    """The relay has refused or broken the sync; the message says why."""


ERRORS = (SyncFailed, RemoteFailed)


class Refusals:
    """Reasons by their first word, each with one example: prices and ids make every text differ."""

    def __init__(self) -> None:
        self._numbers: Counter[str] = Counter()
        self._examples: dict[str, str] = {}

    def count(self, reason: str, number: int = 1) -> None:
        word = prefix_of(reason)
        self._numbers[word] += number
        self._examples.setdefault(word, reason)

    def __iter__(self) -> Iterator[str]:
        return (f"{number} refused: {self._examples[word]}"
                for word, number in sorted(self._numbers.items()) if number)  # fmt: skip


@dataclass
class SyncReport:
    ours: int = 0
    have: dict[bytes, None] = field(default_factory=dict)  # what they lack
    need: dict[bytes, None] = field(default_factory=dict)  # what we lack
    rounds: int = 0
    fetched: int = 0
    withheld: Refusals = field(default_factory=Refusals)
    stored: ImportReport = field(default_factory=ImportReport)
    sent: int = 0
    known: int = 0
    refused: Refusals = field(default_factory=Refusals)
    paid: int = 0
    amount: int = 0
    traffic: tuple[int, int] = (0, 0)

    def lines(self) -> Iterator[tuple[str, str]]:
        yield "ours", f"{self.ours} events"
        yield "have", f"{len(self.have)} that they lack"
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
        paid = f", {self.paid} of them for {self.amount}" if self.paid else ""
        yield "uploaded", f"{self.sent}{paid}; {self.known} known there"
        yield from (("", reason) for reason in self.refused)
        sent, received = self.traffic
        yield "traffic", f"{self.rounds} rounds, {sent} bytes sent, {received} received"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("url", help="WebSocket URL of the relay")
    parser.add_argument("--filter", default="{}", type=filter_json, help="a NIP-01 filter, as JSON")
    parser.add_argument(
        "--dir",
        choices=("down", "up", "both"),
        default="both",
        help="fetch what we lack, send what they lack, or both",
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what differs")
    parser.add_argument("--token", default="", help="pay for uploads with it, where asked to")
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
        if report.rounds:  # else nothing has happened that could be told
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
        self._token: str = arguments.token

    async def run(self) -> None:
        items = await asyncio.to_thread(
            lambda: seal_members(find_members(self._agent, [self._filter]), _WITHOUT_END)
        )
        self._report.ours = len(items)
        self._payer = SyncPayer(self._agent.settings, self._url, self._token)
        async with connected(self._url) as remote:
            try:
                await self._reconcile(remote, items)
                if self._down:
                    await self._download(remote)
                if self._up:
                    await self._upload(remote)
            finally:
                self._report.traffic = (remote.bytes_sent, remote.bytes_received)

    async def _reconcile(self, remote: Remote, items: SealedVector) -> None:
        initiator, report = Initiator(items, _FRAME), self._report
        message: bytes | None = initiator.initiate()
        head: tuple[object, ...] = ("NEG-OPEN", _SYNC, self._filter.as_dict())
        with self._bar("comparing", None, " rounds") as bar:
            while message is not None:
                await remote.send(*head, message.hex())
                reply = await self._neg_reply(remote)
                try:
                    message, have, need = initiator.reconcile(reply)
                except InvalidMessage as error:
                    raise SyncFailed(f"the relay's answer is not negentropy: {error}") from None
                report.have.update(dict.fromkeys(have))
                report.need.update(dict.fromkeys(need))
                report.rounds += 1
                bar.update()
                head = ("NEG-MSG", _SYNC)
        await remote.send("NEG-CLOSE", _SYNC)

    async def _neg_reply(self, remote: Remote) -> bytes:
        asked = ("NEG-MSG", _SYNC), ("NEG-ERR", _SYNC), ("CLOSED", _SYNC)
        try:
            frame = await anext(remote.answers(*asked))
        except RemoteFailed as error:
            if self._report.rounds:
                raise
            raise SyncFailed(f"{error}; does it support NIP-77?") from None
        if frame[0] != "NEG-MSG":
            raise SyncFailed(_refusal(frame))
        try:
            return bytes.fromhex(frame[2])
        except (IndexError, TypeError, ValueError):
            raise SyncFailed("the relay's answer is not hexadecimal") from None

    async def _download(self, remote: Remote) -> None:
        report = self._report
        importer = Importer(self._agent)
        try:
            with self._bar("downloading", len(report.need), " events") as bar:
                for ids in _chunks(report.need, _FETCH_AT_ONCE):
                    lines = await self._fetch(remote, [event_id.hex() for event_id in ids])
                    report.fetched += len(lines)
                    await asyncio.to_thread(importer.store, lines, report.stored)
                    bar.update(len(ids))
        finally:
            await asyncio.to_thread(importer.close)

    async def _fetch(self, remote: Remote, ids: Sequence[str]) -> list[bytes]:
        """The events as lines, each once and only those that were asked for."""
        lines: dict[str, bytes] = {}
        await remote.send("REQ", _FETCH, {"ids": ids, "limit": len(ids)})
        async for frame in remote.answers(("EVENT", _FETCH), ("EOSE", _FETCH), ("CLOSED", _FETCH)):
            if frame[0] == "EVENT" and isinstance(frame[-1], dict):
                lines.setdefault(str(frame[-1].get("id")), orjson.dumps(frame[-1]))
            if frame[0] != "EVENT":
                break
        if frame[0] == "EOSE":
            await remote.send("CLOSE", _FETCH)
        found = [lines[event_id] for event_id in ids if event_id in lines]
        reason = "not sent" if frame[0] == "EOSE" else str(frame[-1])
        self._report.withheld.count(reason, len(ids) - len(found))
        return found

    async def _upload(self, remote: Remote) -> None:
        report = self._report
        with self._bar("uploading", len(report.have), " events") as bar:
            for ids in _chunks(report.have, _SEND_AT_ONCE):
                stored = await asyncio.to_thread(
                    self._agent.events.get_many, [event_id.hex() for event_id in ids]
                )
                await self._publish(remote, stored)
                bar.update(len(ids))

    async def _publish(self, remote: Remote, events: dict[str, StoredEvent]) -> None:
        """Send events and wait until the relay has said OK or why not to each of them."""
        for pause in (*_PAUSES, None):
            refusals = await self._offer(remote, events)
            hasty = [id for id, why in refusals.items() if prefix_of(why) == "rate-limited"]
            if pause is None or not hasty:
                await self._settle(events, refusals)
                return
            await self._settle(events, {id: refusals[id] for id in refusals.keys() - hasty})
            events = {id: events[id] for id in hasty}
            await asyncio.sleep(pause)

    async def _offer(self, remote: Remote, events: dict[str, StoredEvent]) -> dict[str, str]:
        """What is refused, and why."""
        waiting, refusals = set(events), {}
        for event in events.values():
            await remote.send_text(f'["EVENT",{event.json}]')
        if not waiting:
            return {}
        async for _, event_id, accepted, *rest in remote.answers(("OK",)):
            if event_id not in waiting:
                continue
            waiting.discard(event_id)
            text = str(rest[0]) if rest else ""
            if not accepted:
                refusals[event_id] = text or "no reason given"
            elif prefix_of(text) == "duplicate":
                self._report.known += 1
            else:
                self._report.sent += 1
            if not waiting:
                break
        return refusals

    async def _settle(self, events: dict[str, StoredEvent], refusals: dict[str, str]) -> None:
        """Pay where that is what is missing, and note the other reasons."""
        payable = []
        for event_id, reason in refusals.items():
            if self._token and prefix_of(reason) in _PAYABLE:
                payable.append(events[event_id].event)
            else:
                self._report.refused.count(reason)
        for outcome in await self._payer.pay(payable):
            if isinstance(outcome, str):
                self._report.refused.count(outcome)
            else:
                self._report.sent += 1
                self._report.paid += 1
                self._report.amount += outcome

    def _bar(self, name: str, total: int | None, unit: str) -> Any:
        return tqdm(desc=name, total=total, unit=unit, disable=self._quiet, file=sys.stderr)


def prefix_of(reason: str) -> str:
    return reason.split(":", 1)[0]


def _refusal(frame: list[Any]) -> str:
    match frame[2:]:
        case [SyncError.RESULTS_TOO_BIG.value, int(most), *_]:
            return f"the relay reconciles at most {most} events: give a narrower --filter"
        case [reason, *_]:
            return f"the relay ends the sync: {reason}"
    return "the relay ends the sync"


def _chunks(ids: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    rest = iter(ids)
    return iter(lambda: list(islice(rest, size)), [])
