"""What each function may do to each table: only what its verb does.

Tests run the handlers on a store that records every call, and compare the calls with this module in
both directions. A transaction needs the permissions of its parts, and none of its own.
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
_FORGET = _on(Table.SESSIONS, _GET_MANY, _QUERY, _WRITE_MANY)  # removes a client that has left
_SUBSCRIBE = _all(_ARRIVE, _FORGET, _on(Table.SESSIONS, _PUT))
_READ = _all(_on(Table.POSTINGS, _QUERY), _on(Table.EVENTS, _GET_MANY))
# Sends an event to its subscribers. An encrypted frame takes its number from the connection.
_PASS_ON = _all(_FORGET, _on(Table.SESSIONS, _GET, _UPDATE))
_STORE = _all(_on(Table.EVENTS, _GET, _GET_MANY, _PUT, _DELETE), _on(Table.POSTINGS, _WRITE_MANY))
# Reads a purse and draws from it. For a request to vanish (NIP-62), looks for the author's events.
_DRAW = _all(_on(Table.LEDGER, _GET, _GET_MANY, _PUT, _UPDATE), _on(Table.POSTINGS, _QUERY))
_READ_LOG = _all(_on(Table.CHANGES, _GET, _QUERY), _on(Table.EVENTS, _GET_MANY))

_RULES = _on(Table.LEDGER, _GET, _QUERY)  # the operator's rules
# Removes events of an author who is banned or asks to vanish.
_REMOVE = _all(
    _READ, _on(Table.EVENTS, _GET, _PUT), _on(Table.POSTINGS, _WRITE_MANY),
)  # fmt: skip

# A paid subscription: its account, its funds, and the items that refer to it.
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
    "broadcasts": _all(
        _READ,
        _READ_LOG,  # finds events that the owner has published
        _on(Table.EVENTS, _GET),
        _on(Table.SESSIONS, _UPDATE),  # packets are counted
        _on(Table.LEDGER, _GET, _GET_MANY, _QUERY, _PUT, _UPDATE, _DELETE),
        _on(Table.ROUTES, _GET, _GET_MANY),
    ),
    "deliveries": _all(
        _PAID,
        _READ_LOG,
        _READ,  # reads other relays' prices
        _on(Table.LEDGER, _QUERY, _DELETE),  # records payments to them
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
    "outbox": _all(_on(Table.LEDGER, _GET, _QUERY), _on(Table.CHANGES, _GET)),  # what is due
    "paid_subscriptions": _all(_on(Table.LEDGER, _QUERY), _PAID),
    "purse": {},
    "purses": _on(Table.LEDGER, _GET, _QUERY),
    "push": _all(
        _FORGET, _READ_LOG, _on(Table.SESSIONS, _GET, _UPDATE), _on(Table.LEDGER, _GET_MANY, _QUERY)
    ),
    "quotes": _RULES,
    "recipients": _PASS_ON,
    "routes": _all(_READ, _on(Table.ROUTES, _GET, _QUERY), _on(Table.LEDGER, _GET)),
    # A request to vanish is a removal, and a rule.
    "sequencer": _all(
        _on(Table.CHANGES, _GET, _PUT), _REMOVE, _RULES, _on(Table.LEDGER, _PUT, _UPDATE)
    ),
    "settlements": _on(Table.LEDGER, _GET, _PUT, _UPDATE),
    "stream": _all(_READ_LOG, _on(Table.LEDGER, _GET, _PUT, _UPDATE)),
    "subscriptions": _all(_on(Table.LEDGER, _QUERY, _PUT, _DELETE), _on(Table.CHANGES, _GET)),
    "sweeper": _all(_on(Table.LEDGER, _QUERY, _UPDATE, _DELETE), _PAID, _REMOVE),
    "upkeep": _all(
        _STORE,
        _READ,
        _on(Table.LEDGER, _GET, _GET_MANY, _QUERY, _PUT, _UPDATE, _DELETE),
        _on(Table.ROUTES, _GET, _QUERY, _PUT, _WRITE_MANY),  # the table in force is renewed
    ),
}

# Functions that post to connections. Other replies are the route's response. The first message of a
# connection, whatever its verb, is answered with a challenge.
POSTING = frozenset({*_VERBS, "default", "events", "fanout", "ilp", "push", "recipients"})
# Functions that sign, encrypt or derive with the owner's key. All others have only the public key.
KEY = frozenset(
    {"broadcasts", "deliveries", "events", "identity", "ilp", "purse", "quotes", "upkeep"}
)
# Functions that have the derived keys for encrypted sockets and quotes, but not the owner's key.
DERIVED_KEYS = frozenset({"default", "event", "fanout", "recipients"})
# By queue, the functions that send to it. A function that receives an ephemeral event passes it on.
SENDING: Mapping[str, frozenset[str]] = {
    "recipients": frozenset({"default", "event", "events", "fanout", "ilp", "recipients"}),
    "deliveries": frozenset({"deliveries", "ilp", "push", "sweeper"}),
    "broadcasts": frozenset({"broadcasts", "feeds", "outbox", "sequencer"}),
}
# Functions that read CloudWatch's metrics.
WATCHING = frozenset({"operator"})
# Functions that call themselves, to continue after their response.
CALLING_THEMSELVES = frozenset({"ilp"})
# Functions that the settlement engine calls.
SETTLEMENT_TOKEN = frozenset({"settlements"})
# Functions that a payment processor calls.
PURSE_TOKEN = frozenset({"credits"})
