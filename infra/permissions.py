"""What each function may do to each table: what its verb does, and nothing more.

Tests run the handlers against a store that writes down every call, and hold this to it both ways.
A transaction needs the permission of each of its parts, and none of its own.
"""

from collections.abc import Mapping
from enum import StrEnum

from farthing.store.table import Table


class Action(StrEnum):
    GET = "GetItem"
    GET_MANY = "BatchGetItem"
    QUERY = "Query"
    PUT = "PutItem"
    DELETE = "DeleteItem"
    UPDATE = "UpdateItem"
    WRITE_MANY = "BatchWriteItem"
    CHECK = "ConditionCheckItem"


Permissions = Mapping[Table, frozenset[Action]]


def _on(table: Table, *actions: Action) -> Permissions:
    return {table: frozenset(actions)}


def _all(*parts: Permissions) -> Permissions:
    tables = {table for part in parts for table in part}
    return {
        table: frozenset().union(*(part.get(table, frozenset()) for part in parts))
        for table in sorted(tables)
    }


_GET, _GET_MANY, _QUERY = Action.GET, Action.GET_MANY, Action.QUERY
_PUT, _DELETE, _UPDATE, _WRITE_MANY = Action.PUT, Action.DELETE, Action.UPDATE, Action.WRITE_MANY

_ARRIVE = _on(Table.SESSIONS, _UPDATE)  # every message is counted
_FORGET = _on(Table.SESSIONS, _GET_MANY, _QUERY, _WRITE_MANY)  # a client that has gone
_SUBSCRIBE = _all(_ARRIVE, _FORGET, _on(Table.SESSIONS, _PUT))
_READ = _all(_on(Table.POSTINGS, _QUERY), _on(Table.EVENTS, _GET_MANY))
# An event to who waits for it; a sealed frame takes its number from the connection.
_PASS_ON = _all(_FORGET, _on(Table.SESSIONS, _GET, _UPDATE))
_STORE = _all(_on(Table.EVENTS, _GET, _GET_MANY, _PUT, _DELETE), _on(Table.POSTINGS, _WRITE_MANY))
# A purse is looked at and drawn from; who wants to vanish (NIP-62) has events here.
_DRAW = _all(_on(Table.LEDGER, _GET, _GET_MANY, _PUT, _UPDATE), _on(Table.POSTINGS, _QUERY))
_READ_LOG = _all(_on(Table.CHANGES, _GET, _QUERY), _on(Table.EVENTS, _GET_MANY))

_RULES = _on(Table.LEDGER, _GET, _QUERY)  # the operator's rules
# Events of an author that is banned, or asks to vanish.
_REMOVE = _all(
    _READ, _on(Table.EVENTS, _GET, _PUT), _on(Table.POSTINGS, _WRITE_MANY),
)  # fmt: skip

# A paid subscription: its account, its funds, and what leads to it.
_PAID = _on(Table.LEDGER, _GET, _GET_MANY, _PUT, _UPDATE, _WRITE_MANY)

_VERBS: Mapping[str, Permissions] = {
    "auth": _ARRIVE,
    "changes": _all(_SUBSCRIBE, _READ_LOG, _on(Table.SESSIONS, _GET)),
    "close": _all(_ARRIVE, _on(Table.SESSIONS, _PUT, _WRITE_MANY)),
    "count": _all(_ARRIVE, _READ),
    "event": _all(_ARRIVE, _STORE, _DRAW, _FORGET, _RULES),  # ephemeral events are passed on
    "negentropy": _all(
        _ARRIVE, _READ, _on(Table.SESSIONS, _GET, _PUT, _QUERY), _on(Table.EVENTS, _GET)
    ),
    "req": _all(_SUBSCRIBE, _READ),
}

TABLES: Mapping[str, Permissions] = {
    **_VERBS,
    "default": _all(*_VERBS.values()),
    "deliveries": _all(
        _PAID,
        _READ_LOG,
        _READ,  # what other relays say of their prices
        _on(Table.LEDGER, _QUERY, _DELETE),  # and what they are paid
        _on(Table.SESSIONS, _UPDATE),
        _on(Table.ROUTES, _GET, _GET_MANY),
    ),
    "connect": _on(Table.SESSIONS, _PUT),
    "disconnect": _FORGET,
    "credits": _on(Table.LEDGER, _GET, _PUT, _UPDATE),
    "events": _all(_STORE, _FORGET, _DRAW, _RULES, _on(Table.SESSIONS, _UPDATE)),
    "fanout": _PASS_ON,
    "feeds": _all(
        _STORE,
        _READ,
        _RULES,
        _on(Table.LEDGER, _GET, _QUERY, _PUT, _UPDATE),  # checkpoints, and bytes by key
    ),
    "identity": {},
    "ilp": _all(
        _STORE,
        _ARRIVE,
        _FORGET,
        _RULES,
        _on(Table.LEDGER, _GET_MANY, _QUERY, _PUT, _UPDATE, _DELETE),
        _on(Table.ROUTES, _GET, _GET_MANY),
        _PAID,
        _READ,
        _on(Table.CHANGES, _GET, _GET_MANY, _QUERY),
    ),
    "info": _RULES,
    "manage": _all(_REMOVE, _RULES, _on(Table.LEDGER, _PUT, _DELETE, _UPDATE)),
    "operator": _all(
        _READ,
        _RULES,
        _on(Table.EVENTS, _GET),  # whether a reported event is still here
        _on(Table.CHANGES, _GET),
        _on(Table.LEDGER, _GET_MANY, _PUT, _UPDATE),
    ),
    "outbox": _all(
        _READ,
        _READ_LOG,  # what the owner has published
        _on(Table.EVENTS, _GET),
        _on(Table.SESSIONS, _UPDATE),  # packets are counted
        _on(Table.LEDGER, _GET, _GET_MANY, _QUERY, _PUT, _UPDATE, _DELETE),
        _on(Table.ROUTES, _GET, _GET_MANY),
    ),
    "purse": {},
    "purses": _on(Table.LEDGER, _GET, _QUERY),
    "push": _all(
        _FORGET, _READ_LOG, _on(Table.SESSIONS, _GET, _UPDATE), _on(Table.LEDGER, _GET_MANY, _QUERY)
    ),
    "quotes": _RULES,
    "recipients": _PASS_ON,
    "sequencer": _all(_on(Table.CHANGES, _GET, _PUT), _REMOVE, _on(Table.LEDGER, _PUT)),
    "settlements": _on(Table.LEDGER, _GET, _PUT, _UPDATE),
    "stream": _all(_READ_LOG, _on(Table.LEDGER, _GET, _UPDATE)),
    "subscriptions": _all(_on(Table.LEDGER, _PUT, _DELETE), _on(Table.CHANGES, _GET)),
    "sweeper": _all(_on(Table.LEDGER, _QUERY, _UPDATE, _DELETE), _PAID, _REMOVE),
    "upkeep": _all(
        _STORE,
        _READ,
        _on(Table.LEDGER, _GET, _GET_MANY, _QUERY, _PUT, _UPDATE, _DELETE),
        _on(Table.ROUTES, _GET, _QUERY, _PUT, _WRITE_MANY),  # the table in force is renewed
    ),
}

# Those who post to connections; some replies travel as the route's response. A connection's first
# message is answered with a challenge, whatever it is.
POSTING = frozenset({*_VERBS, "default", "events", "fanout", "ilp", "push", "recipients"})
# Those who sign, seal or derive with the owner's key. Everyone else knows the public one.
KEY = frozenset({"deliveries", "events", "identity", "ilp", "outbox", "purse", "quotes", "upkeep"})
# Those who have what is derived from it for encrypted sockets and for quotes, and not the key.
DERIVED_KEYS = frozenset({"default", "event", "fanout", "recipients"})
# Queue of the surface: those who send to it. Ephemeral events are passed on by whoever takes them.
SENDING: Mapping[str, frozenset[str]] = {
    "recipients": frozenset({"default", "event", "events", "fanout", "ilp", "recipients"}),
    "deliveries": frozenset({"deliveries", "ilp", "push", "sweeper"}),
}
# Those who go on after their response, in a call of their own.
CALLING_THEMSELVES = frozenset({"ilp"})
# Those who hear from the settlement engine.
SETTLEMENT_TOKEN = frozenset({"settlements"})
# Those who hear from a payment processor.
PURSE_TOKEN = frozenset({"credits"})
