"""The settlement engine interface of RFC 0038, both ways.

An engine tells us what a peer has paid; we ask an engine to pay a peer when we owe it more than the
threshold. How money moves is the engine's business.
"""

import logging
from hashlib import sha256

import orjson

from farthing.agent import Agent
from farthing.ilp.outbound import OutboundFailed
from farthing.store.ledger import Peer
from farthing.store.settlements import Settlement

log = logging.getLogger("farthing")

_SECONDS = 10.0


class InvalidSettlement(ValueError):
    """The request says no amount that could be counted."""


def receive_settlement(agent: Agent, peer: Peer, key: str, body: object) -> dict[str, object]:
    """What an engine says a peer has paid, in our scale. The quantity that was counted."""
    amount = quantity(body, agent.settings.asset_scale)
    if not key:
        raise InvalidSettlement("an Idempotency-Key is needed")
    agent.settlements.record(Settlement(peer.id, key, amount, True, agent.now))
    return {"amount": str(amount), "scale": agent.settings.asset_scale}


def quantity(body: object, scale: int) -> int:
    """An amount of another scale in ours; what is too small to count stays with the engine."""
    if type(body) is not dict:
        raise InvalidSettlement("the body is not a quantity")
    amount, given = body.get("amount"), body.get("scale")
    if type(amount) is not str or not amount.isdecimal() or not amount.isascii():
        raise InvalidSettlement("amount is not a decimal string")
    if type(given) is not int or not 0 <= given <= 255 or len(amount) > 38:
        raise InvalidSettlement("scale is not a number from 0 to 255")
    number, shift = int(amount), scale - given
    counted: int = number * 10**shift if shift >= 0 else number // 10**-shift
    return counted


def settle_payables(agent: Agent) -> int:
    """Ask the engine to pay every peer to whom we owe more than the threshold. How many."""
    settings = agent.settings
    if not settings.settlement_url:
        return 0
    asked = 0
    for peer in agent.ledger.peers():
        payable = agent.ledger.balance(peer.id).payable
        if payable > settings.settlement_threshold:
            asked += _ask(agent, peer, payable)
    return asked


def _ask(agent: Agent, peer: Peer, amount: int) -> bool:
    """Under a key that stands for this debt: asked again after a crash, it is paid once."""
    total = amount + sum(
        settlement.amount for settlement in agent.settlements.of(peer.id) if not settlement.received
    )
    key = sha256(f"{agent.settings.pubkey}#{peer.id}#{total}".encode()).hexdigest()
    url = f"{agent.settings.settlement_url.rstrip('/')}/accounts/{peer.id}/settlements"
    body = orjson.dumps({"amount": str(amount), "scale": agent.settings.asset_scale})
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    try:
        response = agent.outbound.post(url, headers, body, _SECONDS)
    except OutboundFailed as error:
        log.warning("the settlement engine does not answer: %s", error)
        return False
    if response.status not in (200, 201):
        log.warning("the settlement engine answered HTTP %d", response.status)
        return False
    agent.settlements.record(Settlement(peer.id, key, amount, False, agent.now))
    return True
