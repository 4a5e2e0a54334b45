"""Pays for the events that `farthing sync` and `farthing stream` upload, within limits. Our own
events are paid for by the scheme `author`, other events by a quote from the relay."""

import asyncio
from argparse import ArgumentParser, Namespace
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from farthing.aws.outbound import HttpOutbound
from farthing.connector.client import (
    PreparedPayment,
    RelayTerms,
    pay,
    prepare_payment,
    prepare_quoted,
    quote_from_answer,
    utc_now,
)
from farthing.ilp.packet import Reject
from farthing.nostr.events import Event, public_key_of
from farthing.ports.hosts import ANYWHERE
from farthing.settings import Settings
from infra.local.commands.paying import (
    AUTHOR_FILE,
    ERRORS,
    ask_quote,
    highest_price,
    relay_terms,
)
from infra.local.commands.terminal import whole_number
from infra.local.server.identity import with_identity

_AT_ONCE = 8


# The beginning of the reason when the limit for a relay is reached.
BUDGET_SPENT = "budget spent"


class PaymentLimits(NamedTuple):
    """The token that pays, and the most that it may pay at one relay. If an amount is None, the
    limit is a hundredth of the relay's asset for an event, and one whole unit of it in all."""

    token: str = ""
    max_price: int | None = None
    max_total: int | None = None

    @classmethod
    def of(cls, arguments: Namespace) -> "PaymentLimits":
        return cls(arguments.token, arguments.max_price, arguments.max_total)


def add_payment_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--token", default="", help="token that pays for uploads, if the relay demands payment"
    )
    parser.add_argument(
        "--max-price",
        type=whole_number,
        help="most to pay for one event, in units; a hundredth of the relay's asset if left out",
    )
    parser.add_argument(
        "--max-total",
        type=whole_number,
        help="most to pay to one relay in this run, in units; one whole asset if left out",
    )


class SyncPayer:
    def __init__(self, settings: Settings, relay: str, limits: PaymentLimits) -> None:
        self._relay = relay
        self._limits = limits
        self._spent = 0  # includes payments under way
        self._lock = Lock()
        self._outbound = HttpOutbound(ANYWHERE)
        self._secrets = {public_key_of(secret): secret for secret in _own_secrets(settings)}
        self._terms: RelayTerms | None = None
        self._room = asyncio.Semaphore(_AT_ONCE)

    @property
    def has_token(self) -> bool:
        return bool(self._limits.token)

    async def pay(self, events: list[Event]) -> list[int | str]:
        """For each event the amount paid, or the reason why it was not stored."""
        if not events:
            return []
        try:
            self._terms = self._terms or await asyncio.to_thread(relay_terms, self._relay)
        except ERRORS as error:
            return [_reason(error)] * len(events)
        return list(await asyncio.gather(*map(self._pay, events)))

    async def _pay(self, event: Event) -> int | str:
        async with self._room:
            try:
                return await asyncio.to_thread(self._pay_now, event)
            except ERRORS as error:
                return _reason(error)

    def _pay_now(self, event: Event) -> int | str:
        endpoint, payment = self._prepared(event)
        price = payment.amount
        most = self._most_for_one
        if price > most:
            return f"too expensive: the relay asks {price}, more than the {most} allowed"
        if not self._reserve(2 * price):
            return f"{BUDGET_SPENT}: {self._spent} of --max-total {self._most_in_all}"
        paid = 0
        try:
            token = self._limits.token
            payment, reply = pay(self._outbound, endpoint, token, payment, max_fees=price)
            if isinstance(reply, Reject):
                return f"{reply.code}: {reply.message}"
            paid = payment.amount
            return paid
        finally:
            self._reserve(paid - 2 * price)

    @property
    def _most_for_one(self) -> int:
        return highest_price(self._limits.max_price, self._scale)

    @property
    def _most_in_all(self) -> int:
        given = self._limits.max_total
        return int(10**self._scale) if given is None else given

    @property
    def _scale(self) -> int:
        assert self._terms is not None
        return self._terms.tariff.asset_scale

    def _reserve(self, amount: int) -> bool:
        """Count an amount as spent before it is paid. False if that would exceed the limit."""
        with self._lock:
            if amount > 0 and self._spent + amount > self._most_in_all:
                return False
            self._spent += amount
            return True

    def _prepared(self, event: Event) -> tuple[str, PreparedPayment]:
        assert self._terms is not None
        secret = self._secrets.get(event.pubkey)
        if secret is not None:
            return self._terms.endpoint, prepare_payment(event, secret, self._terms, utc_now())
        quote = quote_from_answer(ask_quote(self._relay, event))
        return quote.endpoint, prepare_quoted(event, quote, utc_now())


def _own_secrets(settings: Settings) -> list[bytes]:
    """The keys that we hold: the owner's, and the key of `farthing post` if there is one."""
    keys = [with_identity(settings).secret_key]
    author = Path(settings.data) / AUTHOR_FILE
    if author.exists():
        keys.append(author.read_text().strip())
    return [bytes.fromhex(key) for key in keys]


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__
