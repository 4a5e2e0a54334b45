"""DynamoDB units and sequential round trips of what clients and peers do."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial

from farthing.connector.client import RelayTerms, prepare_payment, utc_now
from farthing.connector.requests import OCTETS, receive_packet
from farthing.context import Agent
from farthing.ilp.packet import Fulfill, decode_reply, encode
from farthing.nostr.events import Event, sign_event
from farthing.store.ledger import Peer, hash_token
from infra.costs.counting import Cost, CountingEngine
from tests.bench.result import Row, at_most
from tests.bench.worlds import Client, world

ALICE = bytes([2] * 32)
_TAGS = (("e", "b" * 64), ("p", "c" * 64))
_STORED = 150
_RESULTS = 100
_TOKEN = "bench-token-0123456789-abcdefghijklmnopqrstuvwxyz"


def run(quick: bool) -> list[Row]:
    del quick  # it takes a second
    return [*_free_rows(), *_paid_rows()]


def _note(agent: Agent, number: int = 0, kind: int = 1,
          tags: Sequence[Sequence[str]] = _TAGS) -> Event:  # fmt: skip
    created_at = agent.now - 1000 + number
    return sign_event(ALICE, kind=kind, content=f"note {number}", created_at=created_at, tags=tags)


def _measure(agent: Agent, work: Callable[[], object]) -> Cost:
    assert isinstance(agent.engine, CountingEngine)
    agent.engine.reset()
    work()
    return agent.engine.reset()


def _rows(name: str, cost: Cost, *, writes: int | None = None, trips: int | None = None,
          reading: bool = False) -> list[Row]:  # fmt: skip
    units = cost.read_units if reading else cost.write_units
    note = f"{cost.requests} requests, {cost.read_units} read and {cost.write_units} write units"
    return [
        Row(f"units: {name}, {'read' if reading else 'write'} units", units, "",
            target=None if writes is None else at_most(writes), note=note),
        Row(f"units: {name}, round trips", cost.round_trips, "",
            target=None if trips is None else at_most(trips)),
    ]  # fmt: skip


def note_units() -> int:
    """Write units of a note with two tags, not the first of its connection."""
    with world(counting=True, price_per_byte=0) as agent:
        client = Client(agent)
        costs = [
            _measure(agent, partial(client.send, "EVENT", _note(agent, number).as_dict()))
            for number in range(2)
        ]
    return costs[-1].write_units


def _free_rows() -> list[Row]:
    with world(counting=True, price_per_byte=0) as agent:
        client = Client(agent)

        def publish(event: Event) -> Cost:
            return _measure(agent, lambda: _accepted(client.send("EVENT", event.as_dict())))

        notes = [_note(agent, number) for number in range(_STORED)]
        note = [publish(each) for each in notes][-1]
        by_author = {"authors": [notes[0].pubkey], "kinds": [1], "limit": _RESULTS}
        sent = agent.connections.frames  # type: ignore[attr-defined]
        req = _measure(agent, lambda: client.send("REQ", "r", by_author))
        assert agent.connections.frames - sent == _RESULTS  # type: ignore[attr-defined]
        close = _measure(agent, lambda: client.send("CLOSE", "r"))
        count = _measure(agent, lambda: client.send("COUNT", "c", by_author))
        first = publish(_note(agent, 0, kind=0, tags=()))
        replacing = publish(_note(agent, 1, kind=0, tags=()))
        deletion = publish(_note(agent, 500, kind=5, tags=[("e", notes[0].id)]))
    return [
        *_rows("note with two tags", note, writes=8, trips=2),
        *_rows(f"author+kind REQ of {_RESULTS}", req, trips=3, reading=True),
        *_rows("CLOSE", close),
        *_rows(f"COUNT of {_STORED}", count, reading=True),
        *_rows("replaceable, first", first),
        *_rows("replaceable, next", replacing),
        *_rows("deletion of a note", deletion),
    ]


def _accepted(answer: list[object]) -> None:
    assert answer[0] == "OK" and answer[2] is True, answer


def _paid_rows() -> list[Row]:
    with world(counting=True, packets_per_minute=10**6) as agent:
        agent.ledger.add_peer(Peer("bench", hash_token(_TOKEN)))
        terms = RelayTerms(
            agent.settings.own_ilp_address, agent.settings.ilp_url, agent.settings.pubkey,
            agent.settings.tariff,
        )  # fmt: skip
        now = utc_now() + timedelta(minutes=1)
        _pay(agent, terms, 0, now)  # a balance stands from now on
        cost = _measure(agent, lambda: _pay(agent, terms, 1, now))
    return _rows("paid note with two tags", cost, writes=14, trips=4)


def _pay(agent: Agent, terms: RelayTerms, number: int, now: datetime) -> None:
    packet = encode(prepare_payment(_note(agent, number), ALICE, terms, now).prepare)
    headers = {"content-type": OCTETS, "authorization": f"Bearer {_TOKEN}"}
    answer = receive_packet(agent, headers, packet)
    assert isinstance(decode_reply(answer.body), Fulfill)
