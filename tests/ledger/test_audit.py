"""The audit finds nothing in books that are right, and something in any that are not."""

from collections.abc import Callable
from dataclasses import asdict
from hashlib import sha256

import pytest

from farthing.agent.audit import audit
from farthing.agent.identity import publish_identity
from farthing.context import Agent
from farthing.ilp.packet import Fulfill
from farthing.store.ledger import Hold, Peer
from farthing.store.receipts import Forwarded, Receipt
from farthing.store.sqlite import SqliteEngine
from farthing.store.table import Add, Delete, Put, Table
from tests.ilp.paying import PAYER, paid_agent, pay
from tests.relay.world import OWNER, START, Clock, signed

NOTE = signed(content="paid", tags=[["t", "x"]])
VERSIONS = [signed(kind=0, created_at=START + number) for number in range(2)]
DELETED = signed(content="soon deleted")
DELETION = signed(kind=5, tags=[["e", DELETED.id]])
EPHEMERAL = signed(kind=20001)
EXPIRING = signed(tags=[["expiration", str(START + 60)]])
MINE = signed(OWNER, content="mine")
HOLD = Hold(PAYER.id, "0" * 64, 7, 10**13)
GONE = Peer("gone", "9" * 64)
HOP = Peer("hop", "8" * 64, "g.agent.hop", "http://hop", pubkey="7" * 64)
FORWARDED = Receipt(
    peer=PAYER.id,
    condition=sha256(bytes(32)).hexdigest(),
    fulfillment=bytes(32).hex(),
    scheme="",
    amount=100,
    price=1,
    time=START,
    purpose=Forwarded(HOP.id, 99, 500, "d" * 64, "1" * 64),
)
PAID_BY_GONE = signed(content="paid by one who left")


@pytest.fixture
def agent(sqlite: SqliteEngine, clock: Clock) -> Agent:
    """Books with something of everything in them."""
    agent = paid_agent(sqlite, clock)
    publish_identity(agent)
    agent.events.save(MINE)
    for event in (NOTE, *VERSIONS, DELETED, DELETION, EPHEMERAL, EXPIRING):
        assert isinstance(pay(agent, event), Fulfill)
    assert isinstance(pay(agent, signed(OWNER, content="tip"), secret=OWNER, amount=3), Fulfill)
    agent.ledger.hold(HOLD, 10**12)
    agent.ledger.add_peer(GONE)
    assert isinstance(pay(agent, PAID_BY_GONE, GONE), Fulfill)
    agent.ledger.remove_peer(GONE.id)
    agent.ledger.add_peer(HOP)
    forwarded = Hold(PAYER.id, "1" * 64, 100, 10**13)
    assert agent.ledger.hold(forwarded, 10**12)
    assert agent.ledger.post(forwarded, agent.ledger.forwarded(FORWARDED))
    clock.now = START + 100  # one has expired
    return agent


def test_right_books_have_no_differences(agent: Agent) -> None:
    result = audit(agent)
    assert result.differences == []
    assert (result.peers, result.receipts, result.events, result.fees) == (3, 10, 7, 1)
    receipts = [r for peer in (PAYER, GONE) for r in agent.ledger.receipts(peer.id)]
    assert result.posted == sum(receipt.amount for receipt in receipts)
    assert result.pending == HOLD.amount


def receipt_of(agent: Agent, event_id: str, peer: Peer = PAYER) -> Receipt:
    return next(r for r in agent.ledger.receipts(peer.id) if r.purpose.mark == event_id)


def receipt_key(agent: Agent, event_id: str, peer: Peer = PAYER) -> tuple[Table, str, str]:
    receipt = receipt_of(agent, event_id, peer)
    return Table.LEDGER, f"receipt#{peer.id}", f"{receipt.condition}#{event_id}"


def change_balance(part: str, peer: Peer = PAYER) -> Callable[[Agent], None]:
    def change(agent: Agent) -> None:
        agent.engine.write(Add(Table.LEDGER, f"balance#{peer.id}", "balance", {part: 1}))

    return change


def change_receipt(**changes: object) -> Callable[[Agent], None]:
    def change(agent: Agent) -> None:
        item = receipt_of(agent, NOTE.id).item() | changes
        agent.engine.write(Put(*receipt_key(agent, NOTE.id), item))

    return change


def lose_receipt(event_id: str, peer: Peer = PAYER) -> Callable[[Agent], None]:
    def lose(agent: Agent) -> None:
        agent.engine.write(Delete(*receipt_key(agent, event_id, peer)))

    return lose


def change_event(**changes: object) -> Callable[[Agent], None]:
    def change(agent: Agent) -> None:
        item = agent.engine.get(Table.EVENTS, NOTE.id, "e")
        assert item is not None
        left = {name: value for name, value in {**item, **changes}.items() if value is not None}
        agent.engine.write(Put(Table.EVENTS, NOTE.id, "e", left))

    return change


def change_forwarded(**changes: object) -> Callable[[Agent], None]:
    """Without changes the receipt is lost."""

    def change(agent: Agent) -> None:
        item = FORWARDED.item() | changes
        place = (Table.LEDGER, *FORWARDED.key)
        agent.engine.write(Put(*place, item) if changes else Delete(*place))

    return change


def lose(*key: str) -> Callable[[Agent], None]:
    def lose_it(agent: Agent) -> None:
        assert agent.engine.get(Table(key[0]), *key[1:]) is not None
        agent.engine.write(Delete(Table(key[0]), *key[1:]))

    return lose_it


def hold_of(peer: str, amount: int) -> Callable[[Agent], None]:
    """A hold without its part of a balance."""
    hold = Hold(peer, "0" * 64, amount, HOLD.expires_ms)
    return lambda agent: (
        agent.engine.write(Put(Table.LEDGER, *hold.key, {"amount": amount})) and None
    )


CORRUPTIONS: dict[str, Callable[[Agent], None]] = {
    "posted": change_balance("posted"),
    "pending": change_balance("pending"),
    "owed": change_balance("owed"),
    "payable": change_balance("payable"),
    "posted of a former peer": change_balance("posted", GONE),
    "no balance": lose("ledger", f"balance#{PAYER.id}", "balance"),
    "no receipt": lose_receipt(NOTE.id),
    "no receipt of a version": lose_receipt(VERSIONS[1].id),
    "no receipt of a former peer": lose_receipt(PAID_BY_GONE.id, GONE),
    "no receipt of an ephemeral event": lose_receipt(EPHEMERAL.id),
    "a receipt's amount": change_receipt(amount=10**9),
    "a receipt's price": change_receipt(price=10**9),
    "a receipt's fulfillment": change_receipt(fulfillment="00" * 32),
    "a receipt's event": change_receipt(event_id="0" * 64),
    "an event without payment": change_event(r=None),
    "an event of another payment": change_event(r=f"{PAYER.id}#{'0' * 64}"),
    "an event of nobody's payment": change_event(r=f"nobody#{'0' * 64}"),
    "an event's content": change_event(
        j=NOTE.to_json().replace('"content":"paid"', '"content":"pain"')
    ),
    "an event's author": change_event(p="0" * 64),
    "an event that is no JSON": change_event(j="{"),
    "a forwarded packet's fee": change_forwarded(price=9),
    "what the next hop received": change_forwarded(outgoing=98),
    "no receipt of a forwarded packet": change_forwarded(),
    "no record under a peer's id": lose("ledger", "peers", HOP.id),
    "no record under a peer's address": lose("ledger", f"address#{HOP.ilp_address}", "address"),
    "another record under a peer's key": lambda agent: (
        agent.engine.write(Put(Table.LEDGER, f"pubkey#{HOP.pubkey}", "pubkey", asdict(GONE)))
        and None
    ),
    "another endpoint under a peer's address": lambda agent: (
        agent.engine.write(
            Put(
                Table.LEDGER,
                f"address#{HOP.ilp_address}",
                "address",
                {**asdict(HOP), "endpoint": "http://thief"},
            )
        )
        and None
    ),
    "no event": lose("events", NOTE.id, "e"),
    "a stranger's event for free": lambda agent: agent.events.save(signed(content="free")) and None,
    "no hold": lose("ledger", *HOLD.key),
    "a hold's amount": hold_of(PAYER.id, 8),
    "a hold of nobody": hold_of("nobody", 1),
    "no way from the token to the peer": lose("ledger", f"token#{PAYER.token_hash}", "token"),
    "another peer behind the token": lambda agent: (
        agent.engine.write(Put(Table.LEDGER, f"token#{PAYER.token_hash}", "token", asdict(GONE)))
        and None
    ),
}


@pytest.mark.parametrize("corrupt", CORRUPTIONS.values(), ids=CORRUPTIONS)
def test_each_corruption_is_found(agent: Agent, corrupt: Callable[[Agent], None]) -> None:
    corrupt(agent)
    assert audit(agent).differences
