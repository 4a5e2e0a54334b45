"""The HTTP requests about purses: the address for payments, the credit that a payment processor
reports, and the balance. Only the purse's key and the relay's owner may read a purse."""

from collections.abc import Callable
from secrets import token_bytes
from typing import Any

from farthing.connector.settlement import quantity
from farthing.context import Agent
from farthing.ilp import spsp
from farthing.ilp.oer import U64_MAX
from farthing.ilp.purse import TOKEN_LENGTH, is_public_key, purse_address
from farthing.nostr.nip19 import InvalidNip19, Npub, encode, parse_public_key
from farthing.ports.http import (
    BadRequest,
    Conflict,
    Forbidden,
    NotFound,
    Unauthorized,
    shows_token,
)
from farthing.settings import Settings
from farthing.store.purses import Movement
from farthing.store.settlements import KeyUsedDifferently

_LAST_MOVEMENTS = 20


class InvalidPurse(BadRequest):
    """A request about a purse lacks a valid key or a valid amount."""


def find_key(text: str) -> str:
    """The key (hex) in a path, given as npub or in hexadecimal. Raises NotFound for any
    other text."""
    try:
        key = parse_public_key(text)
    except InvalidNip19:
        raise NotFound("expected a public key as npub or in hexadecimal") from None
    if not is_public_key(bytes.fromhex(key)):
        raise NotFound("expected a public key: no point has this x-coordinate")
    return key


def read_key(value: object) -> str:
    """The key (hex) in a body, given as npub or in hexadecimal."""
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
    return "$" + settings.purse_url(pubkey).partition("://")[2]


def offer_of(settings: Settings, pubkey: str) -> dict[str, str]:
    """The purse of a key, for an answer that states a price."""
    return {
        "key": pubkey,
        "url": settings.purse_url(pubkey),
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
    """Count what a payment processor was paid for a purse. Returns the counted quantity in our
    scale. A remainder below our smallest unit stays with the processor."""
    if not shows_token(authorization, agent.settings.purse_token):
        raise Unauthorized("expected the payment processor's token")
    key = find_key(purse)
    amount = quantity(_with_decimal_string(read_body()), agent.settings.asset_scale)
    if not idempotency_key:
        raise InvalidPurse("expected an Idempotency-Key header")
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


def show_purse(agent: Agent, key: str, asker: str) -> dict[str, Any]:
    """A purse's balance and movements, for the purse's key and the relay's owner."""
    settings = agent.settings
    if asker not in (key, settings.pubkey):
        raise Forbidden("only the purse's key and the relay's owner may read a purse")
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
