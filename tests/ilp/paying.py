"""What the tests of paid writes stand on: a relay with its price, a peer, packets, and dumps of all
that is kept."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest

from farthing.connector import steps as connector
from farthing.context import Agent
from farthing.ilp.condition import author_fulfillment, condition_of
from farthing.ilp.packet import Fulfill, Prepare, Reject, decode_reply, encode, to_milliseconds
from farthing.ilp.toon import dumps_event
from farthing.nostr.events import Event
from farthing.store.attributes import unmarshal, unmarshal_key
from farthing.store.dynamodb import DynamoDBEngine
from farthing.store.ledger import Peer, hash_token
from farthing.store.postings import id_in
from farthing.store.sqlite import SqliteEngine
from farthing.store.sqlite_packing import unpack_partition, unpack_postings
from farthing.store.table import Delete, Engine, Table
from tests.relay.world import ALICE, Clock, make_agent, signed
from tests.store.tables import create_tables

PER_BYTE = 10
TOKEN = "payer-token-of-forty-three-characters-0123456789"
PAYER = Peer("payer", hash_token(TOKEN))

Dump = dict[tuple[str, str, str], dict[str, Any]]


def paid_agent(engine: Engine, clock: Clock, peer: Peer = PAYER, **settings: Any) -> Agent:
    """A relay that charges by the byte, and one who may send it packets."""
    agent = make_agent(engine, clock, **{"price_per_byte": PER_BYTE, **settings})
    if agent.ledger.peer(peer.id) is None:
        agent.ledger.add_peer(peer)
    return agent


def expiry(agent: Agent, seconds: float = 30.0) -> datetime:
    return to_milliseconds(datetime.fromtimestamp(agent.clock(), UTC) + timedelta(seconds=seconds))


def price_of(agent: Agent, event: Event) -> int:
    return agent.settings.tariff.price_event(event, len(dumps_event(event)))


def packet(agent: Agent, event: Event, *, secret: bytes = ALICE, **changes: Any) -> Prepare:
    """What the author sends to have the event stored, at its price, unless told otherwise."""
    data = changes.get("data", dumps_event(event))
    fulfillment = author_fulfillment(secret, bytes.fromhex(agent.settings.pubkey), data)
    fields = {
        "amount": price_of(agent, event),
        "expires_at": expiry(agent),
        "condition": condition_of(fulfillment),
        "destination": agent.settings.own_ilp_address,
        "data": data,
    }
    return Prepare(**{**fields, **changes})


def send(agent: Agent, prepare: Prepare | bytes, peer: Peer = PAYER) -> Fulfill | Reject:
    octets = prepare if isinstance(prepare, bytes) else encode(prepare)
    return decode_reply(connector.handle(agent, peer, octets))


def pay(agent: Agent, event: Event, peer: Peer = PAYER, **changes: Any) -> Fulfill | Reject:
    return send(agent, packet(agent, event, **changes), peer)


def assert_fulfilled(reply: Fulfill | Reject, prepare: Prepare) -> None:
    assert isinstance(reply, Fulfill), reply
    assert condition_of(reply.fulfillment) == prepare.condition


def code_of(reply: Fulfill | Reject) -> str:
    return reply.code if isinstance(reply, Reject) else "fulfilled"


def posted(agent: Agent, peer: Peer = PAYER) -> int:
    return agent.ledger.balance(peer.id).posted


def note(content: str = "hello", **changes: Any) -> Event:
    return signed(content=content, **changes)


def dump(engine: Engine) -> Dump:
    """All that is kept, but for postings that point nowhere and counters of packets."""
    everything = {
        (str(table), pk, sk): item for table in Table for pk, sk, item in rows(engine, table)
    }
    here = {key[1] for key, item in everything.items() if key[0] == Table.EVENTS and "j" in item}
    return {
        (table, pk, sk): item
        for (table, pk, sk), item in everything.items()
        if not pk.startswith("packets#") and (table != Table.POSTINGS or id_in(sk) in here)
    }


def rows(engine: Engine, table: Table) -> Iterable[tuple[str, str, dict[str, Any]]]:
    engine = getattr(engine, "inner", engine)
    if isinstance(engine, DynamoDBEngine):
        found = engine.connection.client.scan(TableName=MotoLedger.names[id(engine)] + table)[
            "Items"
        ]
        return [(*unmarshal_key(each), unmarshal(each)) for each in found]
    assert isinstance(engine, SqliteEngine)
    if table is Table.SESSIONS:
        partitions = engine._memory._partitions.items()
        return [
            (pk, sk, dict(item)) for (_, pk), part in partitions for sk, item in part.items.items()
        ]
    engine.flush()
    listed = engine._file.reader.execute(f"SELECT pk, sk, item FROM {table}").fetchall()
    if table is Table.POSTINGS:
        # The name of a list cannot be read from its digest, but digests differ as names do.
        return [(_text(pk), _text(sk), unpack_postings([item])[0]) for pk, sk, item in listed]
    keys = [(unpack_partition(table, pk), sk) for pk, sk, _ in listed]
    found = {key: engine.get(table, *key) for key in keys}
    return [(pk, sk, dict(item)) for (pk, sk), item in found.items() if item is not None]


def _text(part: str | bytes) -> str:
    return part if isinstance(part, str) else part.hex()


class MotoLedger:
    """Tables on moto, made once and emptied for each user."""

    names: ClassVar[dict[int, str]] = {}  # prefix of each engine's tables

    def __init__(self) -> None:
        self._clock = Clock()
        prefix = f"paid{len(self.names)}-"
        self.engine = DynamoDBEngine(prefix, region="eu-central-1", clock=lambda: self._clock())
        self.names[id(self.engine)] = prefix
        create_tables(self.engine.connection, prefix)

    def empty(self, clock: Clock) -> DynamoDBEngine:
        self._clock = clock
        for table in Table:
            self.engine.write_batch(
                [Delete(table, pk, sk) for pk, sk, _ in rows(self.engine, table)]
            )
        return self.engine


def engine_of(request: pytest.FixtureRequest, clock: Clock) -> Engine:
    """For fixtures: the engine that the parameter names."""
    if request.param == "sqlite":
        sqlite: SqliteEngine = request.getfixturevalue("sqlite")
        return sqlite
    moto: MotoLedger = request.getfixturevalue("moto_ledger")
    return moto.empty(clock)
