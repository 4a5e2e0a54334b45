"""The data of the operator's console, and its actions beside moderation (NIP-86).

All data is read from the tables, within bounds, so a view stays cheap when the tables are large.
Figures since the start come from the meter, if it keeps any.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from itertools import islice
from typing import Any

from farthing.btp_nips.identity import Owner
from farthing.btp_nips.lifecycle import Ending
from farthing.connector.subscriptions.accounts import subscription_row
from farthing.connector.subscriptions.ending import end_and_tell
from farthing.context import Agent
from farthing.nostr.events import is_hex64
from farthing.nostr.filters import Filter
from farthing.ports.connections import CountedConnections
from farthing.ports.figures import Watched
from farthing.ports.http import BadRequest, Conflict, NotFound
from farthing.relay.manage import Reported, reported_events
from farthing.relay.moderation import rules
from farthing.store.ledger import Peer
from farthing.store.outbox import Broadcast

_RECENT_EVENTS = 1000
_BROADCASTS = 20  # each broadcast is read with its deliveries
_MOST_ROWS = 200
_MOST_REPORTED = 50  # reported events that are shown with their text
_MOST_CHARACTERS = 500
_MAX_AMOUNT = 2**63 - 1
_NOTHING_WATCHED = Watched()


def overview(agent: Agent, watched: Watched = _NOTHING_WATCHED) -> dict[str, Any]:
    settings = agent.settings
    clients = agent.connections
    report = agent.figures.read(watched, agent.now)
    return {
        "relay": {
            "name": settings.name,
            "pubkey": settings.pubkey,
            "ilp_address": settings.own_ilp_address,
            "asset_code": settings.asset_code,
            "asset_scale": settings.asset_scale,
        },
        "time": agent.now,
        "alone": agent.alone,
        # Figures since the start, if this is the only process; in the cloud CloudWatch has them.
        "totals": agent.meter.totals(),
        **({} if report is None else {"figures": asdict(report)}),
        **({"connections": len(clients)} if isinstance(clients, CountedConnections) else {}),
        "events": agent.part(_RecentEvents).read(),
        "peers": [_peer_row(agent, peer) for peer in islice(agent.ledger.peers(), _MOST_ROWS)],
        "limits": {
            "max_balance": str(settings.max_balance),
            "max_packet": str(settings.max_packet),
        },
        "purses": _purses(agent),
        "moderation": _moderation(agent),
        "broadcasts": [_broadcast_row(each) for each in agent.outbox.broadcasts(_BROADCASTS)],
        "subscriptions": _subscriptions(agent),
    }


class _RecentEvents:
    """Number and bytes of the newest events, by kind. A count of all events would read the whole
    table.

    In the cloud each read costs money, so the events are read as seldom as CloudWatch's figures,
    and only if there are newer events."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._read_at = 0
        # The highest number counted, and the counts.
        self._counted: tuple[int, list[dict[str, int]]] | None = None

    def read(self) -> dict[str, Any]:
        agent, counted = self._agent, self._counted
        last, age = agent.changes.last_number(), agent.now - self._read_at
        if agent.alone or counted is None or not 0 <= age < agent.settings.figures_seconds:
            if agent.alone or counted is None or counted[0] != last:
                counted = self._counted = last, self._count()
            self._read_at = agent.now
        return {"numbered": last, "recent": counted[1]}

    def _count(self) -> list[dict[str, int]]:
        kinds: dict[int, list[int]] = {}
        for record in self._agent.reader.find(Filter(limit=_RECENT_EVENTS)):
            row = kinds.setdefault(record.kind, [0, 0])
            row[0] += 1
            row[1] += len(record.json.encode())
        return [
            {"kind": kind, "events": row[0], "bytes": row[1]} for kind, row in sorted(kinds.items())
        ]


def _moderation(agent: Agent) -> dict[str, Any]:
    reported = list(islice(reported_events(agent), _MOST_ROWS))
    by_subject = rules(agent).by_subject
    return {
        "rules": {subject.value: len(found) for subject, found in by_subject.items()},
        "waiting": len(reported),
        "reported": [_reported_row(each) for each in reported[:_MOST_REPORTED]],
    }


def _reported_row(reported: Reported) -> dict[str, Any]:
    """What the operator needs to decide: the event's text, not only its id."""
    event = reported.event
    return {
        "id": event.id,
        "reason": reported.reason,
        "pubkey": event.pubkey,
        "kind": event.kind,
        "content": event.event.content[:_MOST_CHARACTERS],
    }


def _broadcast_row(broadcast: Broadcast) -> dict[str, Any]:
    return {
        "id": broadcast.event_id,
        "time": broadcast.time,
        "spent": str(broadcast.spent),
        "states": Counter(each.state.value for each in broadcast.deliveries),
        "last_failure": next((each.why for each in broadcast.deliveries if each.why), ""),
    }


def _subscriptions(agent: Agent) -> list[dict[str, Any]]:
    """Subscriptions of the first owners, open subscriptions first."""
    owners = islice(agent.paid_subscriptions.owners(), _MOST_ROWS)
    found = [each for one in owners for each in agent.paid_subscriptions.of(one, agent.now)]
    found.sort(key=lambda each: (each.state.has_ended, each.expires_at))
    return [
        {"owner": each.owner, **subscription_row(each, agent.now)} for each in found[:_MOST_ROWS]
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
    """Carry out an action of the operator. Returns the changed record."""
    action = ACTIONS.get(str(body.get("action")))
    if action is None:
        raise BadRequest(f"action: expected one of {', '.join(sorted(ACTIONS))}")
    return action(agent, body)


def _set_peer(agent: Agent, body: Mapping[str, Any]) -> dict[str, Any]:
    peer = agent.ledger.peer(str(body.get("id", "")))
    if peer is None:
        raise NotFound("expected the id of a peer, got an unknown one")
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
        raise BadRequest("mark: expected 8 to 64 characters, different for each grant")
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


def _close(agent: Agent, body: Mapping[str, Any]) -> dict[str, Any]:
    owner, name = Owner(str(body.get("owner", ""))), str(body.get("id", ""))
    found = agent.paid_subscriptions.get(owner, name, agent.now)
    if found is None:
        raise NotFound("expected the owner and id of a subscription, got unknown ones")
    ended = end_and_tell(agent, found, Ending.OPERATOR)
    if ended is None:
        raise Conflict("the subscription has ended already")
    return {"owner": owner, "id": name, "credit": str(ended.returned)}


ACTIONS: Mapping[str, Callable[[Agent, Mapping[str, Any]], dict[str, Any]]] = {
    "set_peer": _set_peer,
    "grant": _grant,
    "freeze": _freeze,
    "close": _close,
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
