"""Paid subscriptions: 100 stored events by pull, next to a WebSocket REQ of the same 100; and
deliveries a second by push to one next hop, next to forwarded packets."""

import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from http.client import HTTPConnection
from itertools import count, repeat
from pathlib import Path
from statistics import median
from typing import Any
from urllib.request import urlopen

from farthing.btp_nips.codec import encode
from farthing.btp_nips.messages import PULL_MAX, Metadata, Payment, Req
from farthing.btp_nips.models import Model
from farthing.connector.client import utc_now
from farthing.connector.exchange import OCTETS
from farthing.ilp.condition import author_fulfillment, condition_of
from farthing.ilp.packet import Fulfill, Prepare, decode_reply, to_milliseconds
from farthing.ilp.packet import encode as encode_packet
from farthing.nostr.events import public_key_of, sign_event
from farthing.nostr.filters import parse_filter
from farthing.store.outgoing_subscriptions import Outgoing, OutgoingSubscriptions
from farthing.store.sqlite import SqliteEngine
from tests.bench import forwarding
from tests.bench.loading import cpu_seconds
from tests.bench.req import RESULTS, Client
from tests.bench.result import Row, at_least, at_most
from tests.e2e.relay_process import RelayProcess
from tests.relay.world import Clock, make_agent
from tests.subscriptions.world import store

TIMES_A_REQ = 3.0
SHARE_OF_FORWARDING = 0.5
_WINDOW = 10
_SUBSCRIPTIONS = 16  # as many as there are payers in the bench of forwarding
_END = "g.agent.end"
_TOKEN = "bench-token-0123456789-abcdefghijklmnopqrstuvwxyz"
_AUTHOR, _SUBSCRIBER = bytes([2] * 32), bytes([8] * 32)
_FILTER: dict[str, Any] = {"kinds": [1], "authors": [public_key_of(_AUTHOR)], "limit": RESULTS}


def run(quick: bool) -> list[Row]:
    return [*_pulled(quick), *_pushed(quick)]


def _pulled(quick: bool) -> list[Row]:
    turns = 30 if quick else 300
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "relay"
        _fill(data)
        relay = RelayProcess(
            data, price_per_byte=0, requests_per_second=0, peer_token=_TOKEN, upkeep_seconds=0,
            packets_per_minute=10**9, ilp_address="g.bench", subscription_max=10**6,
            subscription_per_peer=10**6,
        ).start()  # fmt: skip
        try:
            client, puller = Client(relay.port), Puller(relay)
            return [
                _compared(client, puller, turns, "a question of its own", _asked_anew()),
                _compared(client, puller, turns, "a question asked before", repeat(_FILTER)),
            ]
        finally:
            relay.stop()
            relay.check_log()


def _compared(
    client: Client, puller: "Puller", turns: int, which: str, filters: Iterator[dict[str, Any]]
) -> Row:
    for _ in range(10):
        client.time_req(next(filters))
        puller.time_pull(next(filters))
    by_socket = _median(turns, lambda: client.time_req(next(filters)))
    by_pull = _median(turns, lambda: puller.time_pull(next(filters)))
    return Row(
        f"paid REQ by pull: 100 stored events, {which}", 1000 * by_pull, "ms", 1000 * by_socket,
        "ms by WebSocket REQ", at_most(TIMES_A_REQ),
        "the REQ, its payment and the pulls: two packets, each of them committed",
    )  # fmt: skip


def _asked_anew() -> Iterator[dict[str, Any]]:
    """Filters for the same events that differ, so that no answer comes from the cache."""
    return ({**_FILTER, "until": until} for until in count(1_800_000_000))


def _pushed(quick: bool) -> list[Row]:
    _, forwarded = forwarding.measure(quick)
    rounds, events = (1, 100) if quick else (3, 500)
    settings: dict[str, object] = {
        "price_per_byte": 0, "requests_per_second": 0, "upkeep_seconds": 0,
        "packets_per_minute": 10**9,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        _fill(Path(folder) / "relay", events)
        relay = RelayProcess(
            Path(folder) / "relay", ilp_address="g.agent.hop", peer_token=_TOKEN,
            subscription_max=10**6, subscription_per_peer=10**6, **settings,
        ).start()  # fmt: skip
        end = RelayProcess(
            Path(folder) / "end", ilp_address=_END, secret_key=_SUBSCRIBER.hex(), **settings
        ).start()
        try:
            forwarding.introduce(relay, end)
            pusher = Pusher(relay, end, events)
            pusher.time_round(1)  # proves the address as well
            number = rounds * _SUBSCRIPTIONS * events
            before = sum(map(cpu_seconds, pusher.pids))
            taken = sum(pusher.time_round(_SUBSCRIPTIONS) for _ in range(rounds))
            cpu = sum(map(cpu_seconds, pusher.pids)) - before
        finally:
            for each in (relay, end):
                each.stop()
                each.check_log()
    note = (
        f"{number:,} deliveries of {_SUBSCRIPTIONS} subscriptions, {_WINDOW} under way for each;"
        f" CPU of both agents {1e6 * cpu / number:.0f} µs against"
        f" {forwarded.server_microseconds:.0f} µs"
    )
    return [
        Row("paid subscriptions by push: one next hop", number / taken, "deliveries/s",
            forwarded.rate, "packets/s forwarded", at_least(SHARE_OF_FORWARDING), note),
    ]  # fmt: skip


class Pusher:
    """Opens subscriptions by push and waits until everything was delivered."""

    def __init__(self, relay: RelayProcess, end: RelayProcess, events: int) -> None:
        self.pids = [relay.process.pid, end.process.pid]
        self._relay, self._end, self._events = relay, end, events
        self._number = 0

    def time_round(self, subscriptions: int) -> float:
        names = [f"p{self._number + each}" for each in range(subscriptions)]
        self._number += subscriptions
        engine = SqliteEngine(self._end.data)
        until = int(time.time()) + 3600
        for name in names:
            OutgoingSubscriptions(engine).note(Outgoing(self._relay.pubkey, name), until)
        engine.close()
        wanted = self._delivered() + subscriptions * self._events
        client = PacketClient(self._relay, "g.agent.hop")
        filters = (parse_filter({**_FILTER, "limit": self._events}),)
        started = time.perf_counter()
        for name in names:
            metadata = Metadata(
                int(time.time()), sender=public_key_of(_SUBSCRIBER), reply_to=_END, window=_WINDOW
            )
            payment = Payment(model=Model.STREAMING)
            req = Req(name, filters, payment, metadata)
            client.send(client.packet(req, 1000 + 10 * self._events))
        while self._delivered() < wanted:
            time.sleep(0.02)
        return time.perf_counter() - started

    def _delivered(self) -> int:
        with urlopen(f"{self._relay.http}/metrics") as answer:
            for line in answer.read().splitlines():
                if line.startswith(b"farthing_events_delivered_total"):
                    return int(float(line.split()[-1]))
        raise LookupError("the server does not say how many events it has delivered")


def _median(turns: int, measure: Callable[[], float]) -> float:
    return median(measure() for _ in range(turns))


def _fill(folder: Path, number: int = RESULTS) -> None:
    engine = SqliteEngine(folder)
    agent = make_agent(engine, Clock())
    store(agent, *(
        sign_event(_AUTHOR, kind=1, content=f"note {n}", created_at=1_700_000_000 + n, tags=[])
        for n in range(number)
    ))  # fmt: skip
    engine.close()


class PacketClient:
    """One who sends messages in packets, over one connection."""

    def __init__(self, relay: RelayProcess, address: str) -> None:
        self._connection = HTTPConnection("127.0.0.1", relay.port)
        self._relay = bytes.fromhex(relay.pubkey)
        self._address = address

    def packet(self, message: Req, amount: int) -> bytes:
        data = encode(message)
        fulfillment = author_fulfillment(_SUBSCRIBER, self._relay, data)
        prepare = Prepare(amount, _expiry(), condition_of(fulfillment), self._address, data)
        return encode_packet(prepare)

    def send(self, packet: bytes) -> bytes:
        headers = {"Content-Type": OCTETS, "Authorization": f"Bearer {_TOKEN}"}
        self._connection.request("POST", "/ilp", packet, headers)
        reply = decode_reply(self._connection.getresponse().read())
        assert isinstance(reply, Fulfill), reply
        return reply.data


class Puller:
    """Opens a subscription and pulls until it has everything, over one connection."""

    def __init__(self, relay: RelayProcess) -> None:
        self._client = PacketClient(relay, "g.bench")
        self._number = 0

    def time_pull(self, filter: dict[str, Any]) -> float:
        """Seconds from the first packet to the last event. The packets are made before, as the
        frame of the WebSocket REQ is that this stands against; nor are the answers parsed."""
        self._number += 1
        name, received = f"s{self._number}", 0
        packets = [self._packet(name, [filter], 20_000)]
        packets += [self._packet(name, [], 0) for _ in range(RESULTS // PULL_MAX - 1)]
        started = time.perf_counter()
        for packet in packets:
            received += self._client.send(packet).count(b'"messageType":1,')
        taken = time.perf_counter() - started
        assert received == RESULTS, f"{received} events for {filter}"
        return taken

    def _packet(self, name: str, filters: list[dict[str, Any]], amount: int) -> bytes:
        self._number += 1
        metadata = Metadata(
            int(time.time()), sender=public_key_of(_SUBSCRIBER), pull=PULL_MAX,
            origin=None if filters else f"{self._number:064x}",
        )  # fmt: skip
        parsed = tuple(parse_filter(each) for each in filters)
        return self._client.packet(Req(name, parsed, Payment(), metadata), amount)


def _expiry() -> datetime:
    return to_milliseconds(utc_now() + timedelta(seconds=30))
