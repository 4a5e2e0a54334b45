"""Connections: their records, their authenticated keys, and their rates.

`subscriptions` has the subscriptions of a connection, which end with the connection.
"""

from collections.abc import Sequence
from typing import NamedTuple

from farthing.store.noise_states import NO_NOISE, NoiseState, noise_state
from farthing.store.subscriptions import LISTED, Subscriptions, listing
from farthing.store.table import (
    EXPIRES,
    Add,
    Delete,
    Engine,
    Item,
    Key,
    Put,
    Query,
    Table,
    read_all,
)

_CONNECTION = "c"
_PROVEN = "as#"
_AETHER = "x"
_UNGREETED = "ungreeted"


class Connection(NamedTuple):
    id: str
    challenge: str
    host: str
    pubkeys: frozenset[str]  # the authenticated keys
    messages: int  # number of messages, this one included
    base_messages: int  # number of messages at the start of the current rate window
    base_time: int
    proven: Sequence[str] = ()  # the same keys, in the order of their AUTH
    is_aether: bool = False  # marked as Aether: no Nostr frames are sent on it
    is_ungreeted: bool = False  # its first message was not a Nostr message
    noise: NoiseState = NO_NOISE


class Sessions:
    def __init__(self, engine: Engine, subscriptions: Subscriptions, seconds: int) -> None:
        self._engine = engine
        self._subscriptions = subscriptions
        self._life = seconds

    def connect(
        self, connection_id: str, challenge: str, host: str, now: int, *, is_aether: bool = False
    ) -> None:
        item = {"challenge": challenge, "host": host, "t": now, EXPIRES: now + self._life}
        if is_aether:
            item[_AETHER] = True
        self._engine.write(Put(Table.SESSIONS, *connection_key(connection_id), item))

    def visit(self, connection_id: str, now: int) -> Connection:
        """Count a message, and read the connection's record in the same request."""
        item = self._engine.write(
            Add(Table.SESSIONS, *connection_key(connection_id), {"n": 1},
                {EXPIRES: now + self._life})
        )  # fmt: skip
        assert item is not None
        return _connection(connection_id, item)

    def put_off_greeting(self, connection_id: str, *, is_ungreeted: bool) -> None:
        """Store whether the challenge is still to be sent with the first Nostr message."""
        assign = {_UNGREETED: is_ungreeted}
        self._engine.write(Add(Table.SESSIONS, *connection_key(connection_id), {}, assign))

    def rebase(self, connection_id: str, messages: int, now: int) -> None:
        """Begin a new rate window with a given number of earlier messages."""
        assign = {"m": messages, "t": now}
        self._engine.write(Add(Table.SESSIONS, *connection_key(connection_id), {}, assign))

    def get(self, connection_id: str) -> Connection | None:
        item = self._engine.get(Table.SESSIONS, *connection_key(connection_id))
        return None if item is None else _connection(connection_id, item)

    def authenticate(self, connection: Connection, pubkey: str) -> None:
        # Each key has an attribute, so that two AUTHs at the same time do not overwrite each other.
        # Its value is the number of the message, so that the order of the keys is known.
        if pubkey in connection.pubkeys:
            return
        proven = {_PROVEN + pubkey: connection.messages}
        self._engine.write(Add(Table.SESSIONS, *connection_key(connection.id), {}, proven))

    def disconnect(self, connection_id: str) -> None:
        """Delete a connection, all its subscriptions, and all other items of its partition."""
        pk = listing(connection_id)
        held = [row.sk for row in read_all(self._engine, Query(Table.SESSIONS, pk))]
        listed = [sk for sk in held if sk.startswith(LISTED)]
        keys = {(pk, sk) for sk in (_CONNECTION, *held)}
        keys |= self._subscriptions.end_all(connection_id, listed)
        self._engine.write_batch([Delete(Table.SESSIONS, pk, sk) for pk, sk in sorted(keys)])

    def count_packet(self, peer_id: str, now: int) -> int:
        """Count a packet of a peer. Returns the number of packets in this minute, this one
        included."""
        minute = now // 60
        assign = {EXPIRES: 60 * (minute + 2)}
        item = self._engine.write(
            Add(Table.SESSIONS, f"packets#{peer_id}", str(minute), {"n": 1}, assign)
        )
        assert item is not None
        number: int = item["n"]
        return number


def connection_key(connection_id: str) -> Key:
    return listing(connection_id), _CONNECTION


def _connection(connection_id: str, item: Item) -> Connection:
    proven = [(item[name], name) for name in item if name.startswith(_PROVEN)]
    keys = tuple(name.removeprefix(_PROVEN) for _, name in sorted(proven)) if proven else ()
    return Connection(
        connection_id,
        item.get("challenge", ""),
        item.get("host", ""),
        frozenset(keys),
        item.get("n", 0),
        item.get("m", 0),
        item.get("t", 0),
        keys,
        item.get(_AETHER, False),
        item.get(_UNGREETED, False),
        noise_state(item),
    )
