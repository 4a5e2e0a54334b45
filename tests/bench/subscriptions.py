"""Paid subscriptions: 100 stored events by pull, next to a WebSocket REQ of the same 100."""

import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from http.client import HTTPConnection
from pathlib import Path
from statistics import median

from farthing.btp_nips.codec import encode
from farthing.btp_nips.messages import Metadata, Payment, Req
from farthing.connector.client import utc_now
from farthing.connector.exchange import OCTETS
from farthing.ilp.condition import author_fulfillment, condition_of
from farthing.ilp.packet import Fulfill, Prepare, decode_reply, to_milliseconds
from farthing.ilp.packet import encode as encode_packet
from farthing.nostr.events import public_key_of, sign_event
from farthing.nostr.filters import parse_filter
from farthing.store.sqlite import SqliteEngine
from tests.bench.req import RESULTS, Client
from tests.bench.result import Row, at_most
from tests.e2e.relay_process import RelayProcess
from tests.relay.world import Clock, make_agent
from tests.subscriptions.world import store

TIMES_A_REQ = 3.0
_TOKEN = "bench-token-0123456789-abcdefghijklmnopqrstuvwxyz"
_AUTHOR, _SUBSCRIBER = bytes([2] * 32), bytes([8] * 32)
_FILTER = {"kinds": [1], "authors": [public_key_of(_AUTHOR)], "limit": RESULTS}


def run(quick: bool) -> list[Row]:
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
            for _ in range(10):
                client.time_req(_FILTER)
                puller.time_pull()
            by_socket = _median(turns, lambda: client.time_req(_FILTER))
            by_pull = _median(turns, puller.time_pull)
        finally:
            relay.stop()
            relay.check_log()
    return [
        Row("paid REQ by pull: 100 stored events", 1000 * by_pull, "ms", 1000 * by_socket,
            "ms by WebSocket REQ", at_most(TIMES_A_REQ), "the REQ, its payment and the pulls"),
    ]  # fmt: skip


def _median(turns: int, measure: Callable[[], float]) -> float:
    return median(measure() for _ in range(turns))


def _fill(folder: Path) -> None:
    engine = SqliteEngine(folder)
    agent = make_agent(engine, Clock())
    store(agent, *(
        sign_event(_AUTHOR, kind=1, content=f"note {n}", created_at=1_700_000_000 + n, tags=[])
        for n in range(RESULTS)
    ))  # fmt: skip
    engine.close()


class Puller:
    """Opens a subscription and pulls until it has everything, over one connection."""

    def __init__(self, relay: RelayProcess) -> None:
        self._connection = HTTPConnection("127.0.0.1", relay.port)
        self._relay = bytes.fromhex(relay.pubkey)
        self._number = 0

    def time_pull(self) -> float:
        self._number += 1
        name, received = f"s{self._number}", 0
        started = time.perf_counter()
        received += self._ask(name, [_FILTER], 20_000)
        while received < RESULTS:
            received += self._ask(name, [], 0)
        return time.perf_counter() - started

    def _ask(self, name: str, filters: list[dict[str, object]], amount: int) -> int:
        self._number += 1
        metadata = Metadata(
            int(time.time()), sender=public_key_of(_SUBSCRIBER), pull=50,
            origin=None if filters else f"{self._number:064x}",
        )  # fmt: skip
        parsed = tuple(parse_filter(each) for each in filters)
        data = encode(Req(name, parsed, Payment(), metadata))
        fulfillment = author_fulfillment(_SUBSCRIBER, self._relay, data)
        prepare = Prepare(amount, _expiry(), condition_of(fulfillment), "g.bench", data)
        headers = {"Content-Type": OCTETS, "Authorization": f"Bearer {_TOKEN}"}
        self._connection.request("POST", "/ilp", encode_packet(prepare), headers)
        reply = decode_reply(self._connection.getresponse().read())
        assert isinstance(reply, Fulfill), reply
        # Not parsed: neither are the frames of the WebSocket that this stands against.
        return reply.data.count(b'"messageType":1,')


def _expiry() -> datetime:
    return to_milliseconds(utc_now() + timedelta(seconds=30))
