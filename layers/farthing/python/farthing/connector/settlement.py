"""The settlement engine interface of RFC 0038, in both directions.

An engine reports a peer's payments to us. We ask the engine to pay a peer when our debt to the peer
exceeds the threshold. The engine alone decides how money moves.
"""

import logging
from http.client import CREATED, NOT_FOUND, OK
from secrets import token_hex

import orjson

from farthing.context import Agent
from farthing.ports.http import BadRequest, Conflict, NotFound, Unauthorized, shows_token
from farthing.ports.outbound import OutboundFailed
from farthing.store.settlements import KeyUsedDifferently, Settlement

log = logging.getLogger("farthing")

_SECONDS = 10.0
_LARGEST = 2**63 - 1  # more than any balance holds


class InvalidSettlement(BadRequest):
    """The request lacks a valid amount or an Idempotency-Key."""


def check_engine(agent: Agent, authorization: str, account: str) -> str:
    """The account in a request of the settlement engine. Other callers are refused."""
    if not shows_token(authorization, agent.settings.settlement_token):
        raise Unauthorized("expected the settlement engine's token")
    if not agent.ledger.has_account(account):
        raise NotFound("expected the account of a peer, got an unknown one")
    return account


def receive_settlement(agent: Agent, account: str, key: str, body: object) -> dict[str, object]:
    """Count a payment that the engine reports for an account. Returns the counted amount in our
    scale."""
    amount = quantity(body, agent.settings.asset_scale)
    if not key or not key.isprintable():  # octets that are not UTF-8 are not printable
        raise InvalidSettlement("expected an Idempotency-Key of printable characters")
    try:
        agent.settlements.receive(Settlement(account, key, amount, True, agent.now))
    except KeyUsedDifferently as error:
        raise Conflict(str(error)) from None
    return {"amount": str(amount), "scale": agent.settings.asset_scale}


def quantity(body: object, scale: int) -> int:
    """Convert an amount to our scale. A remainder below our smallest unit is dropped: the engine is
    told the counted amount, and keeps the remainder."""
    if type(body) is not dict:
        raise InvalidSettlement('expected {"amount": …, "scale": …}, got no object')
    amount, given = body.get("amount"), body.get("scale")
    if type(amount) is not str or not amount.isdecimal() or not amount.isascii():
        raise InvalidSettlement("expected amount as a decimal string")
    if type(given) is not int or not 0 <= given <= 255 or len(amount) > 38:
        raise InvalidSettlement("expected scale from 0 to 255, and at most 38 digits of amount")
    number, shift = int(amount), scale - given
    counted: int = number * 10**shift if shift >= 0 else number // 10**-shift
    if counted > _LARGEST:
        raise InvalidSettlement("expected an amount that a balance can hold, got a larger one")
    return counted


def settle_payables(agent: Agent) -> int:
    """Ask the engine to pay each account, also of former peers, to which our debt exceeds the
    threshold. Returns the number of settlements that the engine has accepted."""
    if not agent.settings.settlement_url:
        return 0
    return sum(_settle_account(agent, account) for account in agent.ledger.account_ids())


def _settle_account(agent: Agent, account: str) -> bool:
    settlement = _due(agent, account)
    if settlement is None or not _ask(agent, settlement):
        return False
    return agent.settlements.finish(settlement)


def _due(agent: Agent, account: str) -> Settlement | None:
    """The settlement to ask for: the last one if the engine has not accepted it, else our debt."""
    if not agent.ledger.balance(account).payable:  # most accounts: one read is enough
        return None
    last = agent.settlements.last_asked(account)
    if last is not None and last.is_open:
        return last.settlement
    payable = agent.ledger.balance(account).payable
    if payable <= agent.settings.settlement_threshold:
        return None
    settlement = Settlement(account, token_hex(16), payable, False, agent.now)
    return settlement if agent.settlements.begin(settlement, last) else None


def _ask(agent: Agent, settlement: Settlement) -> bool:
    """Whether the engine has accepted the settlement. If the engine does not know the account, it
    is asked to open the account."""
    place = f"/accounts/{settlement.peer}/settlements"
    wanted = {"amount": str(settlement.amount), "scale": agent.settings.asset_scale}
    status = _post(agent, place, wanted, settlement.key)
    if status == NOT_FOUND and _is_done(_post(agent, "/accounts", {"id": settlement.peer})):
        status = _post(agent, place, wanted, settlement.key)
    return _is_done(status)


def _is_done(status: int | None) -> bool:
    if status is not None and status not in (OK, CREATED):
        log.warning("the settlement engine refused a request", extra={"status": status})
    return status in (OK, CREATED)


def _post(agent: Agent, place: str, body: object, key: str = "") -> int | None:
    """The engine's answer; None if there is none."""
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if key:
        headers["Idempotency-Key"] = key
    url = agent.settings.settlement_url.rstrip("/") + place
    try:
        return agent.outbound.post(url, headers, orjson.dumps(body), _SECONDS).status
    except OutboundFailed as error:
        log.warning("the settlement engine does not answer", extra={"reason": str(error)})
        return None
