"""Holds, posts, releases, payments and sweeps in any order, beside a model that keeps lists."""

from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from farthing.store.ledger import (
    Balance,
    Hold,
    InvalidPeerId,
    Ledger,
    Peer,
    PeerExists,
    hash_token,
)
from farthing.store.payment import PaymentRefused
from farthing.store.receipts import Receipt, Stored
from farthing.store.settlements import Settlement, Settlements
from farthing.store.sqlite import SqliteEngine
from farthing.store.table import Absent, Engine, Put, Table, TransactionCancelled
from tests.ilp.paying import MotoLedger
from tests.relay.world import Clock

PEERS = ["ann", "bob"]
LIMIT = 100
AMOUNTS = st.one_of(st.integers(0, 40), st.just(LIMIT), st.just(LIMIT + 1))


class LedgerMachine(RuleBasedStateMachine):
    """The model: a number for what is posted, and a dict of open holds with their expiry."""

    open_holds = Bundle("open_holds")

    def make_ledger(self) -> Engine:
        raise NotImplementedError

    @initialize()
    def begin(self) -> None:
        self.ledger = Ledger(self.make_ledger())
        self.posted = dict.fromkeys(PEERS, 0)
        self.held: dict[Hold, None] = {}
        self.paid: set[tuple[str, str]] = set()
        self.number = 0

    def owed(self, peer: str) -> int:
        return self.posted[peer] + sum(hold.amount for hold in self.held if hold.peer == peer)

    def next_id(self) -> str:
        self.number += 1
        return f"{self.number * 2654435761 % 2**32:08x}{self.number:056x}"

    @rule(target=open_holds, peer=st.sampled_from(PEERS), amount=AMOUNTS, expires=st.integers(1, 9))
    def hold(self, peer: str, amount: int, expires: int) -> Any:
        hold = Hold(peer, self.next_id(), amount, expires * 1000)
        room = self.owed(peer) + amount <= LIMIT or amount == 0
        assert self.ledger.hold(hold, LIMIT) is room
        if not room:
            return multiple()
        if amount:
            self.held[hold] = None
        return hold

    @rule(hold=open_holds)
    def hold_twice(self, hold: Hold) -> None:
        """The same packet again reserves nothing more."""
        if hold in self.held:
            assert self.ledger.hold(hold, LIMIT * 10) is False

    @rule(hold=consumes(open_holds))
    def post(self, hold: Hold) -> None:
        is_open = hold in self.held or hold.amount == 0
        assert self.ledger.post(hold) is is_open
        if self.held.pop(hold, 0) is None:
            self.posted[hold.peer] += hold.amount

    @rule(hold=open_holds)
    def release(self, hold: Hold) -> None:
        is_open = hold in self.held or hold.amount == 0
        assert self.ledger.release(hold) is is_open
        self.held.pop(hold, None)

    @rule(peer=st.sampled_from(PEERS), amount=AMOUNTS, again=st.booleans())
    def pay(self, peer: str, amount: int, again: bool) -> None:
        known = sorted(condition for payer, condition in self.paid if payer == peer)
        condition = known[0] if again and known else self.next_id()
        taken = self.try_payment(peer, condition, amount)
        room = self.owed(peer) + amount <= LIMIT or amount == 0
        assert taken is (amount == 0 or (room and (peer, condition) not in self.paid))
        if taken and amount:  # an amount of 0 writes nothing
            self.posted[peer] += amount
            self.paid.add((peer, condition))

    def try_payment(self, peer: str, condition: str, amount: int) -> bool:
        receipt = Receipt(peer, condition, "00", "author", amount, 0, 0, Stored("e" * 64, 1, 1))
        try:
            self.ledger._engine.transact(self.ledger.payment(receipt, LIMIT).writes)
        except (TransactionCancelled, PaymentRefused):
            return False
        return True

    @rule(peer=st.sampled_from(PEERS), amount=st.integers(0, 150))
    def settle(self, peer: str, amount: int) -> None:
        """A peer may pay more than it owes, and spend that later."""
        key = self.next_id()
        settlements = Settlements(self.ledger._engine)
        assert settlements.receive(Settlement(peer, key, amount, True, 0)) is True
        assert settlements.receive(Settlement(peer, key, amount, True, 0)) is False
        self.posted[peer] -= amount

    @rule(now=st.integers(0, 10))
    def sweep(self, now: int) -> None:
        expired = [hold for hold in self.held if hold.expires_ms <= now * 1000]
        assert self.ledger.release_expired(now * 1000) == len(expired)
        for hold in expired:
            del self.held[hold]

    @invariant()
    def agrees_with_the_model(self) -> None:
        if not hasattr(self, "ledger"):
            return
        for peer in PEERS:
            pending = sum(hold.amount for hold in self.held if hold.peer == peer)
            owed = self.posted[peer] + pending
            expected = Balance(posted=self.posted[peer], pending=pending, owed=owed)
            assert self.ledger.balance(peer) == expected
            assert expected.owed <= LIMIT
            receipts = list(self.ledger.receipts(peer))
            assert {(each.peer, each.condition) for each in receipts} == {
                key for key in self.paid if key[0] == peer
            }
        assert set(self.ledger.holds()) == self.held.keys()


def test_the_ledger_agrees_with_its_model_on_sqlite(tmp_path: Path) -> None:
    class OnSqlite(LedgerMachine):
        def make_ledger(self) -> Engine:
            self.engine = SqliteEngine(Path(mkdtemp(dir=tmp_path)))
            return self.engine

        def teardown(self) -> None:
            if hasattr(self, "engine"):
                self.engine.close(flush=False)

    run_state_machine_as_test(OnSqlite, settings=settings(max_examples=40, stateful_step_count=25))


def test_the_ledger_agrees_with_its_model_on_moto(moto_ledger: MotoLedger) -> None:
    class OnMoto(LedgerMachine):
        def make_ledger(self) -> Engine:
            return moto_ledger.empty(Clock())

    run_state_machine_as_test(
        OnMoto,
        settings=settings(
            max_examples=6,
            stateful_step_count=12,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )


# What the model leaves out


@pytest.fixture
def ledger(engine: Engine) -> Ledger:
    return Ledger(engine)


def test_what_goes_along_with_a_post_is_all_or_nothing(ledger: Ledger, engine: Engine) -> None:
    hold = Hold("ann", "0" * 64, 5, 1000)
    along = [Put(Table.LEDGER, "x", "y", {"a": 1}, Absent())]
    ledger.hold(hold, LIMIT)
    ledger.release(hold)
    assert ledger.post(hold, along) is False
    assert engine.get(Table.LEDGER, "x", "y") is None
    ledger.hold(hold, LIMIT)
    assert ledger.post(hold, along) is True
    assert engine.get(Table.LEDGER, "x", "y") == {"a": 1}
    assert ledger.balance("ann") == Balance(posted=5, owed=5)


def test_nothing_held_is_settled_by_what_goes_along(ledger: Ledger) -> None:
    nothing = Hold("ann", "0" * 64, 0, 1000)
    along = [Put(Table.LEDGER, "x", "z", {"a": 1}, Absent())]
    assert ledger.hold(nothing, LIMIT) is True
    assert ledger.post(nothing, along) is True
    assert ledger.post(nothing, along) is False
    assert ledger.balance("ann") == Balance()


def test_a_hold_of_another_amount_is_another_hold(ledger: Ledger) -> None:
    ledger.hold(Hold("ann", "0" * 64, 5, 1000), LIMIT)
    assert ledger.post(Hold("ann", "0" * 64, 6, 1000)) is False
    assert ledger.balance("ann") == Balance(pending=5, owed=5)


def test_peers_are_found_by_id_and_by_token_until_they_are_removed(ledger: Ledger) -> None:
    ann = Peer(
        "ann", hash_token("token of ann"), endpoint="https://ann.example", jwt_secret=b"\x00s"
    )
    ledger.add_peer(ann)
    assert ledger.peer("ann") == ledger.peer_by_token_hash(hash_token("token of ann")) == ann
    assert ledger.peer_by_token_hash(hash_token("token of bob")) is None
    for same in (Peer("ann", "1"), Peer("bob", ann.token_hash)):
        with pytest.raises(PeerExists):
            ledger.add_peer(same)
    assert [peer.id for peer in ledger.peers()] == ["ann"]
    assert ledger.remove_peer("ann") is True
    assert ledger.remove_peer("ann") is False
    assert ledger.peer("ann") is ledger.peer_by_token_hash(hash_token("token of ann")) is None
    assert list(ledger.peers()) == []
    assert ledger.account_ids() == ["ann"]  # its history stays
    ledger.add_peer(ann)
    assert ledger.account_ids() == ["ann"]


@pytest.mark.parametrize("peer_id", ["", "a#b", "a b", "ü", "x" * 129, "a\n"])
def test_ids_that_would_break_a_key(ledger: Ledger, peer_id: str) -> None:
    with pytest.raises(InvalidPeerId):
        ledger.add_peer(Peer(peer_id, "0"))


def test_a_record_of_an_earlier_version_has_no_limits_where_it_says_0(
    ledger: Ledger, engine: Engine
) -> None:
    ledger.add_peer(Peer("ann", hash_token("t"), max_balance=0, max_packet=0))
    assert ledger.peer("ann") == Peer("ann", hash_token("t"), max_balance=0, max_packet=0)
    item = dict(engine.get(Table.LEDGER, "peers", "ann") or {})
    del item["limits"]
    engine.write(Put(Table.LEDGER, "peers", "ann", item))
    assert ledger.peer("ann") == Peer("ann", hash_token("t"))
