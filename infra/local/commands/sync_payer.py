"""Paying for the events that `farthing sync` uploads: our own by the scheme `author`, those of
others by a quote from the relay."""

import asyncio
from pathlib import Path

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
from infra.local.commands.paying import AUTHOR_FILE, ERRORS, ask_quote, relay_terms
from infra.local.server.identity import with_identity

_AT_ONCE = 8


class SyncPayer:
    def __init__(self, settings: Settings, relay: str, token: str) -> None:
        self._relay = relay
        self._token = token
        self._outbound = HttpOutbound(ANYWHERE)
        self._secrets = {public_key_of(secret): secret for secret in _own_secrets(settings)}
        self._terms: RelayTerms | None = None
        self._room = asyncio.Semaphore(_AT_ONCE)

    async def pay(self, events: list[Event]) -> list[int | str]:
        """For each event what was paid for it, or why it was not stored."""
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
        payment, reply = pay(self._outbound, endpoint, self._token, payment, max_fees=price)
        if isinstance(reply, Reject):
            return f"{reply.code}: {reply.message}"
        return payment.amount

    def _prepared(self, event: Event) -> tuple[str, PreparedPayment]:
        assert self._terms is not None
        secret = self._secrets.get(event.pubkey)
        if secret is not None:
            return self._terms.endpoint, prepare_payment(event, secret, self._terms, utc_now())
        quote = quote_from_answer(ask_quote(self._relay, event))
        return quote.endpoint, prepare_quoted(event, quote, utc_now())


def _own_secrets(settings: Settings) -> list[bytes]:
    """The keys that we hold: the owner's, and that of `farthing post` if it was ever used."""
    keys = [with_identity(settings).secret_key]
    author = Path(settings.data) / AUTHOR_FILE
    if author.exists():
        keys.append(author.read_text().strip())
    return [bytes.fromhex(key) for key in keys]


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__
