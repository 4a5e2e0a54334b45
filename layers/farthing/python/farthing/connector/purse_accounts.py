"""What is asked of purses by HTTP: where to pay into one, what a processor was paid for one, and
what one holds. Only its key and the owner may look into a purse."""

from collections.abc import Callable
from secrets import token_bytes
from typing import Any

from farthing.connector.settlement import quantity
from farthing.context import Agent
from farthing.ilp import spsp
from farthing.ilp.oer import U64_MAX
from farthing.ilp.purse import TOKEN_LENGTH, is_public_key, purse_address
from farthing.nostr.http_auth import InvalidHttpAuth, authorized_key
from farthing.nostr.nip19 import InvalidNip19, Npub, encode, parse_public_key
from farthing.ports.http import (
    BadRequest,
    Conflict,
    Forbidden,
    NotFound,
    NotSigned,
    Unauthorized,
    shows_token,
)
from farthing.relay.purses import page_of
from farthing.settings import Settings
from farthing.store.purses import Movement
from farthing.store.settlements import KeyUsedDifferently

_LAST_MOVEMENTS = 20


class InvalidPurse(BadRequest):
    """No key, or no amount, in a request about a purse."""


def find_key(text: str) -> str:
    """The key (hex) in a path, given as npub or in hexadecimal; NotFound where it is none."""
    try:
        key = parse_public_key(text)
    except InvalidNip19:
        raise NotFound("expected a public key as npub or in hexadecimal") from None
    if not is_public_key(bytes.fromhex(key)):
        raise NotFound("expected a public key: no point has this x-coordinate")
    return key


def read_key(value: object) -> str:
    """The same of a body."""
    try:
        return find_key(value if type(value) is str else "")
    except NotFound as error:
        raise InvalidPurse(f"purse: {error}") from None


def read_amount(value: object) -> int:
    """A positive amount, as a decimal string or a number."""
    if type(value) is str and value.isdecimal() and value.isascii() and len(value) <= 20:
        value = int(value)
    if type(value) is not int or not 0 < value <= U64_MAX:
        raise InvalidPurse("amount: expected a positive whole number as a decimal string")
    return value


def pointer_of(settings: Settings, pubkey: str) -> str:
    """The payment pointer, which wallets resolve to the URL of the purse's page."""
    return "$" + page_of(settings, pubkey).partition("://")[2]


def offer_of(settings: Settings, pubkey: str) -> dict[str, str]:
    """The purse of a key, for an answer that states a price."""
    return {
        "key": pubkey,
        "url": page_of(settings, pubkey),
        "pointer": pointer_of(settings, pubkey),
        "destination": purse_address(settings.own_ilp_address, bytes.fromhex(pubkey)),
    }


def spsp_answer(agent: Agent, key: str) -> dict[str, Any]:
    settings = agent.settings
    connection = spsp.connect(
        settings.secret,
        settings.own_ilp_address,
        bytes.fromhex(key),
        token_bytes(TOKEN_LENGTH),
    )
    return spsp.answer(connection)


def credit_purse(
    agent: Agent,
    authorization: str,
    purse: str,
    idempotency_key: str,
    read_body: Callable[[], object],
) -> dict[str, Any]:
    """Count what a payment processor was paid for a purse. The quantity that was counted, in our
    scale; what is too small to count stays with the processor."""
    if not shows_token(authorization, agent.settings.purse_token):
        raise Unauthorized("expected the payment processor's token")
    key = find_key(purse)
    amount = quantity(_with_decimal_string(read_body()), agent.settings.asset_scale)
    if not idempotency_key:
        raise InvalidPurse("an Idempotency-Key is needed")
    try:
        counted = amount == 0 or agent.purses.credit(key, idempotency_key, amount, agent.now_ms)
    except KeyUsedDifferently as error:
        raise Conflict(str(error)) from None
    if counted is None:
        raise Conflict("this purse is frozen")
    return {"amount": str(amount), "scale": agent.settings.asset_scale}


def _with_decimal_string(body: object) -> object:
    """Processors also send amounts as numbers."""
    if type(body) is dict and type(body.get("amount")) is int and body["amount"] >= 0:
        return {**body, "amount": str(body["amount"])}
    return body


def signed_by(agent: Agent, authorization: str, *, url: str, method: str, body: bytes = b"") -> str:
    """The key that has signed this very request (NIP-98)."""
    try:
        return authorized_key(authorization, url=url, method=method, body=body, now=agent.now)
    except InvalidHttpAuth as error:
        raise NotSigned(str(error)) from None


def show_purse(agent: Agent, key: str, asker: str) -> dict[str, Any]:
    """What a purse holds, for its own key and for the owner."""
    settings = agent.settings
    if asker not in (key, settings.pubkey):
        raise Forbidden("only its key and the owner look into a purse")
    purse, movements = agent.engine.together(
        lambda: agent.purses.get(key),
        lambda: agent.purses.last_movements(key, _LAST_MOVEMENTS),
    )
    return offer_of(settings, key) | {
        "npub": encode(Npub(key)),
        "asset_code": settings.asset_code,
        "asset_scale": settings.asset_scale,
        "left": str(purse.left),
        "filled": str(purse.filled),
        "granted": str(purse.granted),
        "drawn": str(purse.drawn),
        "frozen": purse.is_frozen,
        "movements": [_as_json(movement) for movement in movements],
    }


def _as_json(movement: Movement) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "kind": movement.kind.value,
        "way": movement.way.value,
        "amount": str(movement.amount),
        "time": movement.time_ms // 1000,
    }
    if "event_id" in movement.detail:
        shown["event_id"] = movement.detail["event_id"]
    return shown
