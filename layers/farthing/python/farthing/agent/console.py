"""What the operator's console shows, and what it changes beside moderation (NIP-86).

Everything is read from the tables, within bounds, so that a look costs little however much there
is. Figures since the start come from the meter, where it keeps them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from farthing.context import Agent
from farthing.nostr.events import is_hex64
from farthing.nostr.filters import Filter
from farthing.ports.connections import CountedConnections
from farthing.ports.http import BadRequest, NotFound
from farthing.relay.manage import reported_events
from farthing.relay.moderation import rules
from farthing.store.ledger import Peer

_RECENT_EVENTS = 1000
_RECENT_BROADCASTS = 20  # each is read with its deliveries
_MOST_ROWS = 200
_MAX_AMOUNT = 2**63 - 1


def overview(agent: Agent) -> dict[str, Any]:
    settings = agent.settings
    clients = agent.connections
    return {
        "relay": {
            "name": settings.name,
            "pubkey": settings.pubkey,
            "ilp_address": settings.own_ilp_address,
            "asset_code": settings.asset_code,
            "asset_scale": settings.asset_scale,
        },
        "time": agent.now,
        "totals": agent.meter.totals(),
        # In the cloud API Gateway has them, and CloudWatch counts them.
        **({"connections": len(clients)} if isinstance(clients, CountedConnections) else {}),
        "events": {"numbered": agent.changes.last_number(), "recent": _recent_events(agent)},
        "peers": [_peer_row(agent, peer) for peer in islice(agent.ledger.peers(), _MOST_ROWS)],
        "purses": _purses(agent),
        "moderation": {
            "rules": {
                subject.value: len(found) for subject, found in rules(agent).by_subject.items()
            },
            "waiting": len(list(islice(reported_events(agent), _MOST_ROWS))),
        },
        "work": list(_work(agent)),
    }


def _work(agent: Agent) -> Iterator[dict[str, str]]:
    """What goes on by itself: of broadcasts the newest, of subscriptions those of the first owners,
    each counted by state."""
    broadcasts = list(agent.outbox.broadcasts(_RECENT_BROADCASTS))
    if broadcasts:
        deliveries = (each.state for one in broadcasts for each in one.deliveries)
        yield {"what": f"newest {len(broadcasts)} broadcasts", "state": _by_state(deliveries)}
    owners = islice(agent.paid_subscriptions.owners(), _MOST_ROWS)
    states = [each.state for one in owners for each in agent.paid_subscriptions.of(one, agent.now)]
    if states:
        yield {"what": "paid subscriptions", "state": _by_state(states)}


def _by_state(states: Iterable[str]) -> str:
    counted = sorted(Counter(map(str, states)).items())
    return ", ".join(f"{number} {state}" for state, number in counted) or "to no relay"


def _recent_events(agent: Agent) -> list[dict[str, int]]:
    """Number and bytes by kind, of the newest events: a count of all would read the whole table."""
    kinds: dict[int, list[int]] = {}
    for record in agent.reader.find(Filter(limit=_RECENT_EVENTS)):
        row = kinds.setdefault(record.kind, [0, 0])
        row[0] += 1
        row[1] += len(record.json.encode())
    return [
        {"kind": kind, "events": row[0], "bytes": row[1]} for kind, row in sorted(kinds.items())
    ]


def _peer_row(agent: Agent, peer: Peer) -> dict[str, Any]:
    balance = agent.ledger.balance(peer.id)
    return {
        "id": peer.id,
        "address": peer.ilp_address,
        "active": peer.active,
        "posted": str(balance.posted),
        "pending": str(balance.pending),
        "payable": str(balance.payable),
        "max_balance": None if peer.max_balance is None else str(peer.max_balance),
        "max_packet": None if peer.max_packet is None else str(peer.max_packet),
    }


def _purses(agent: Agent) -> list[dict[str, Any]]:
    return [
        {
            "key": purse.key,
            "left": str(purse.left),
            "filled": str(purse.filled),
            "granted": str(purse.granted),
            "drawn": str(purse.drawn),
            "frozen": purse.is_frozen,
        }
        for purse in islice(agent.purses.all(), _MOST_ROWS)
    ]


def act(agent: Agent, body: Mapping[str, Any]) -> dict[str, Any]:
    """Do what the operator asks for; what has changed."""
    name = body.get("action")
    if name not in ACTIONS:
        raise BadRequest(f"expected an action of {', '.join(sorted(ACTIONS))}")
    return ACTIONS[str(name)](agent, body)


def _set_peer(agent: Agent, body: Mapping[str, Any]) -> dict[str, Any]:
    peer = agent.ledger.peer(str(body.get("id", "")))
    if peer is None:
        raise NotFound("there is no such peer")
    changes: dict[str, Any] = {}
    for limit in ("max_balance", "max_packet"):
        if limit in body:
            changes[limit] = None if body[limit] is None else _amount(body[limit], limit)
    if "active" in body:
        if type(body["active"]) is not bool:
            raise BadRequest("active: expected true or false")
        changes["active"] = body["active"]
    changed = replace(peer, **changes)
    agent.ledger.replace_peer(changed)
    return _peer_row(agent, changed)


def _grant(agent: Agent, body: Mapping[str, Any]) -> dict[str, Any]:
    key, amount = _key(body), _amount(body.get("amount"), "amount")
    mark = str(body.get("mark", ""))
    if not 8 <= len(mark) <= 64:
        raise BadRequest("mark: expected 8 to 64 characters, another for each grant")
    if not amount:
        raise BadRequest("amount: expected more than 0")
    granted = agent.purses.grant(key, amount, agent.now_ms, mark)
    return {"key": key, "granted": str(amount) if granted else "0"}


def _freeze(agent: Agent, body: Mapping[str, Any]) -> dict[str, Any]:
    frozen = body.get("frozen", True)
    if type(frozen) is not bool:
        raise BadRequest("frozen: expected true or false")
    purse = agent.purses.freeze(_key(body), frozen=frozen)
    return {"key": purse.key, "frozen": purse.is_frozen}


ACTIONS: Mapping[str, Callable[[Agent, Mapping[str, Any]], dict[str, Any]]] = {
    "set_peer": _set_peer,
    "grant": _grant,
    "freeze": _freeze,
}


def _amount(value: object, name: str) -> int:
    """An amount as a decimal string: JavaScript cannot write all of them as numbers."""
    if type(value) is str and value.isascii() and value.isdecimal() and len(value) <= 19:
        amount = int(value)
        if amount <= _MAX_AMOUNT:
            return amount
    raise BadRequest(f"{name}: expected a whole number as a decimal string")


def _key(body: Mapping[str, Any]) -> str:
    key = body.get("key")
    if not is_hex64(key):
        raise BadRequest("key: expected a public key of 64 lowercase hexadecimal digits")
    return str(key)
