"""Exchange events with another relay over one connection: compare sets (NIP-77), fetch events by
their ids, publish events and pay for them. `farthing sync` and `farthing stream` use this module.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import orjson

from farthing.nostr.filters import Filter
from farthing.nostr.negentropy import Initiator, InvalidNegentropy, SealedVector
from farthing.nostr.sync import SyncError
from farthing.store.events import StoredEvent
from infra.local.commands.remote import Remote, RemoteFailed
from infra.local.commands.sync_payer import SyncPayer

_SYNC = "farthing-sync"
_FETCH = "farthing-fetch"
# Bytes; hex doubles them. API Gateway closes the connection after a frame of more than 32 KB.
_FRAME = 16_000
FETCH_AT_ONCE = 250  # below the number of events that relays send for one filter
SEND_AT_ONCE = 100
_PAUSES = (1, 2, 4, 8, 16, 30)  # seconds to wait after the relay has answered rate-limited
RATE_LIMITED = "rate-limited"
_PAYABLE = ("restricted", "payment-required")


class SyncFailed(Exception):
    """The relay has refused the sync or broken its protocol; the message says why."""


class Refusals:
    """Counts refusals by the first word of their reason, with one example of each: prices and ids
    make every text different."""

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


class Difference(NamedTuple):
    """The differences that one round of a comparison has found."""

    have: Sequence[bytes]  # ids that the relay lacks
    need: Sequence[bytes]  # ids that we lack


async def compare(remote: Remote, filter: Filter, ours: SealedVector) -> AsyncIterator[Difference]:
    """Compare our set with the relay's, a round at a time."""
    initiator = Initiator(ours, _FRAME)
    message: bytes | None = initiator.initiate()
    head: tuple[object, ...] = ("NEG-OPEN", _SYNC, filter.as_dict())
    while message is not None:
        await remote.send(*head, message.hex())
        reply = await _neg_reply(remote, is_first=head[0] == "NEG-OPEN")
        try:
            message, have, need = initiator.reconcile(reply)
        except InvalidNegentropy as error:
            raise SyncFailed(f"expected a negentropy message from the relay: {error}") from None
        yield Difference(have, need)
        head = ("NEG-MSG", _SYNC)
    await remote.send("NEG-CLOSE", _SYNC)


async def _neg_reply(remote: Remote, *, is_first: bool) -> bytes:
    asked = ("NEG-MSG", _SYNC), ("NEG-ERR", _SYNC), ("CLOSED", _SYNC)
    try:
        frame = await anext(remote.answers(*asked))
    except RemoteFailed as error:
        if not is_first:
            raise
        raise SyncFailed(f"{error}; does it support NIP-77?") from None
    if frame[0] != "NEG-MSG":
        raise SyncFailed(_refusal(frame))
    try:
        return bytes.fromhex(frame[2])
    except (IndexError, TypeError, ValueError):
        raise SyncFailed("expected hexadecimal digits in the relay's NEG-MSG") from None


def _refusal(frame: list[Any]) -> str:
    match frame[2:]:
        case [SyncError.RESULTS_TOO_BIG.value, int(most), *_]:
            return f"the relay reconciles at most {most} events: give a narrower --filter"
        case [reason, *_]:
            return f"the relay ends the sync: {reason}"
    return "the relay ends the sync"


async def fetch(remote: Remote, ids: Sequence[str], withheld: Refusals) -> list[bytes]:
    """The events as lines, each once, and only events that were asked for."""
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
    withheld.count(reason, len(ids) - len(found))
    return found


@dataclass
class Uploads:
    sent: int = 0
    known: int = 0
    paid: int = 0
    amount: int = 0
    refused: Refusals = field(default_factory=Refusals)

    def __str__(self) -> str:
        paid = f", {self.paid} of them for {self.amount}" if self.paid else ""
        return f"{self.sent}{paid}; {self.known} known there"


class Uploader:
    """Publishes events at one relay, and pays for them if the relay demands it."""

    def __init__(self, payer: SyncPayer, uploads: Uploads) -> None:
        self._payer = payer
        self._uploads = uploads

    async def publish(self, remote: Remote, events: dict[str, StoredEvent]) -> list[str]:
        """Send events and wait until the relay has accepted or refused each of them. Returns the
        reasons of the refused events, and counts them."""
        failed: list[str] = []
        for pause in (*_PAUSES, None):
            refusals = await self._offer(remote, events)
            hasty = [id for id, why in refusals.items() if prefix_of(why) == RATE_LIMITED]
            if pause is None or not hasty:
                failed += await self._pay_for(events, refusals)
                break
            failed += await self._pay_for(
                events, {id: refusals[id] for id in refusals.keys() - hasty}
            )
            events = {id: events[id] for id in hasty}
            await asyncio.sleep(pause)
        return failed

    async def _offer(self, remote: Remote, events: dict[str, StoredEvent]) -> dict[str, str]:
        """Send the events; returns the refused ones, each with its reason."""
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
                self._uploads.known += 1
            else:
                self._uploads.sent += 1
            if not waiting:
                break
        return refusals

    async def _pay_for(self, events: dict[str, StoredEvent], refusals: dict[str, str]) -> list[str]:
        """Pay for events that were refused for lack of payment, and count the other reasons."""
        payable, failed = [], []
        for event_id, reason in refusals.items():
            if self._payer.has_token and prefix_of(reason) in _PAYABLE:
                payable.append(events[event_id].event)
            else:
                failed.append(reason)
        for outcome in await self._payer.pay(payable):
            if isinstance(outcome, str):
                failed.append(outcome)
            else:
                self._uploads.sent += 1
                self._uploads.paid += 1
                self._uploads.amount += outcome
        for reason in failed:
            self._uploads.refused.count(reason)
        return failed


def prefix_of(reason: str) -> str:
    return reason.split(":", 1)[0]


def in_lots(ids: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    rest = iter(ids)
    return iter(lambda: list(islice(rest, size)), [])
