"""A note of Alice's placed at others' relays: paid, retried, told, and never twice."""

import json
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from farthing.connector.origin import ACCOUNT
from farthing.connector.peering import incoming_token
from farthing.store.ledger import Ledger, Peer, hash_token
from farthing.store.outbox import Broadcast, DeliveryState, Outbox
from farthing.store.sqlite import SqliteEngine
from tests.e2e.client import Background, RawClient
from tests.e2e.paying import PER_BYTE, command, free_port
from tests.e2e.relay_process import RelayProcess
from tests.e2e.test_following import owner_of, run

DAY_BUDGET = 10**7
CREDIT = 10**9
_WAIT_SECONDS = 90


@dataclass
class Neighbours:
    """Alice and the relays that she pays; all know her key and give her credit."""

    alice: RelayProcess
    others: list[RelayProcess]
    background: Background

    def note(self, text: str) -> str:
        """A note of Alice's that mentions everybody, stored at her own relay."""
        tags = [["p", each.pubkey] for each in self.others]
        event = owner_of(self.alice).event(text, tags=tags)
        self.publish(self.alice, event)
        return str(event["id"])

    def publish(self, relay: RelayProcess, *events: dict[str, object]) -> None:
        client = RawClient(self.background, relay.url)
        try:
            client.store(*events)
        finally:
            client.close()

    def broadcast(self, id: str) -> Broadcast:
        engine = SqliteEngine(self.alice.data)
        try:
            found = Outbox(engine).broadcast(id)
        finally:
            engine.close()
        assert found is not None
        return found

    def wait_until(
        self, id: str, done: Callable[[Broadcast], bool], seconds: float = 90
    ) -> Broadcast:
        ends = time.monotonic() + seconds
        while not done(found := self.broadcast(id)):
            assert time.monotonic() < ends, found
            time.sleep(0.2)
        return found

    def check_books(self, ids: list[str]) -> None:
        """Each relay is owed by Alice what she says she owes it, and no event is paid twice."""
        paid = sum(
            each.amount
            for id in ids
            for each in self.broadcast(id).deliveries
            if each.state is DeliveryState.STORED
        )
        owed = 0
        for other in self.others:
            theirs = _balance(other.data, "alice")
            ours = _balance(self.alice.data, other.pubkey[:16])
            assert theirs[0] == ours[2], other.url
            owed += theirs[0]
        assert owed == paid == _balance(self.alice.data, ACCOUNT)[0]
        assert paid <= DAY_BUDGET
        for each in (self.alice, *self.others):
            assert run(each, "audit").splitlines()[-1] == "0 differences"


def _balance(data: Path, peer: str) -> tuple[int, int, int]:
    engine = SqliteEngine(data)
    try:
        return Ledger(engine).balance(peer)[:3]
    finally:
        engine.close()


def start_neighbours(folder: Path, background: Background, number: int) -> Neighbours:
    shared = {"upkeep_seconds": 0, "peer_cache_seconds": 0, "forward_fee_ppm": 0}
    others = [
        RelayProcess(
            folder / f"relay{at}", port=free_port(), price_per_byte=PER_BYTE,
            ilp_address=f"g.agent.relay{at}", **shared,
        ).start()
        for at in range(number)
    ]  # fmt: skip
    alice = RelayProcess(
        folder / "alice", port=free_port(), ilp_address="g.agent.alice", peer_with_follows=1,
        broadcast_shares=json.dumps({"mentioned": 100}), broadcast_day_budget=DAY_BUDGET,
        broadcast_retry_seconds=1, broadcast_check_percent=100, broadcast_check_seconds=1,
        broadcast_attempts=30, **shared,
    ).start()  # fmt: skip
    town = Neighbours(alice, others, background)
    tags = [["p", each.pubkey, each.url] for each in others]
    town.publish(alice, owner_of(alice).event("", kind=3, tags=tags))
    for each in others:
        token = incoming_token(bytes.fromhex(owner_of(each).secret), alice.pubkey)
        engine = SqliteEngine(each.data)
        Ledger(engine).add_peer(
            Peer("alice", hash_token(token), max_balance=CREDIT, pubkey=alice.pubkey,
                 asset_code="USD", asset_scale=9)
        )  # fmt: skip
        engine.close()
    assert "do not answer" in run(alice, "upkeep")
    return town


NUMBERS = [
    pytest.param((4, 1), id="lean"),
    pytest.param((7, 2), id="eight-agents", marks=pytest.mark.soak),
]


@pytest.fixture(scope="module", params=NUMBERS)
def town(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    background: Background,
) -> Iterator[tuple[Neighbours, int]]:
    number, down = request.param
    town = start_neighbours(tmp_path_factory.mktemp("town"), background, number)
    yield town, down
    for each in (town.alice, *town.others):
        assert each.stop() == 0
        each.check_log()


def test_some_are_down_and_one_has_raised_its_price(town: tuple[Neighbours, int]) -> None:
    agents, number_down = town
    down, dearer = agents.others[:number_down], agents.others[number_down]
    for each in down:
        assert each.stop() == 0
    assert dearer.stop() == 0
    dearer.settings["price_per_byte"] = 3 * PER_BYTE
    dearer.start()
    id = agents.note("to all of you")

    told = run(agents.alice, "broadcast", id)

    number = len(agents.others)
    assert f"{number - number_down} of {number} stored" in told
    assert told.count("T01") == number_down
    found = agents.broadcast(id)
    paid = {
        each.relay: each.amount for each in found.deliveries if each.state is DeliveryState.STORED
    }
    cheap = min(paid.values())
    assert paid[dearer.url] == 3 * cheap
    assert sorted(paid.values())[:-1] == [cheap] * (number - number_down - 1)

    for each in down:
        each.start()
    agents.wait_until(
        id, lambda each: all(to.state is DeliveryState.STORED for to in each.deliveries)
    )
    assert f"{number} of {number} stored" in run(agents.alice, "broadcasts")
    agents.check_books([id])


def test_kill_9_in_the_middle_loses_and_doubles_nothing(town: tuple[Neighbours, int]) -> None:
    agents, _ = town
    earlier = [each.event_id for each in _all(agents)]
    ids = [agents.note(f"number {at}") for at in range(5)]
    for id in ids:
        command(agents.alice, "broadcast", id, "--wait", "0", timeout=60)
    stored = lambda: sum(  # noqa: E731
        to.state is DeliveryState.STORED for id in ids for to in agents.broadcast(id).deliveries
    )
    ends = time.monotonic() + 30
    while not stored() and time.monotonic() < ends:
        time.sleep(0.005)
    agents.alice.send_signal(signal.SIGKILL)
    agents.alice.wait()
    agents.alice.start()

    for id in ids:
        agents.wait_until(
            id, lambda each: all(to.state is DeliveryState.STORED for to in each.deliveries)
        )
    agents.check_books([*earlier, *ids])


def test_relays_that_keep_what_they_were_paid_for_are_told(town: tuple[Neighbours, int]) -> None:
    agents, _ = town
    ends = time.monotonic() + 30
    while True:
        rows = [line.split() for line in run(agents.alice, "relays").splitlines()[1:]]
        kept = {row[0]: (int(row[4]), int(row[5])) for row in rows if row and row[0][:2] == "ws"}
        if all(kept.get(each.url, (0, 0)) != (0, 0) for each in agents.others):
            break
        assert time.monotonic() < ends, rows
    assert {lost for _, lost in kept.values()} == {0}


def _all(agents: Neighbours) -> list[Broadcast]:
    engine = SqliteEngine(agents.alice.data)
    try:
        return list(Outbox(engine).broadcasts(100))
    finally:
        engine.close()
