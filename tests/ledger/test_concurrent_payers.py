"""Many payers at once against one limit: never exceeded, and each packet paid for once."""

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from farthing.agent.audit import audit
from farthing.context import Agent
from farthing.ilp.packet import Fulfill, Prepare, Reject
from farthing.ilp.tokens import new_token
from farthing.nostr.events import Event
from farthing.store.ledger import Hold, Peer, hash_token
from tests.ilp.paying import code_of, packet, posted, send
from tests.relay.world import signed

PAYERS = 64


def at_once(calls: list[Callable[[], None]]) -> None:
    start = threading.Barrier(len(calls))

    def run(call: Callable[[], None]) -> None:
        start.wait()
        call()

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def events(number: int, kind: int = 1) -> list[Event]:
    return [
        signed((100 + index).to_bytes(32, "big"), kind=kind, content=f"of payer {index}")
        for index in range(number)
    ]


def packets(agent: Agent, given: list[Event], amounts: list[int] | None = None) -> list[Prepare]:
    sums = amounts or [packet(agent, event).amount for event in given]
    return [
        packet(agent, event, secret=(100 + index).to_bytes(32, "big"), amount=amount)
        for index, (event, amount) in enumerate(zip(given, sums, strict=True))
    ]


def test_64_payers_and_room_for_some(agent: Agent) -> None:
    prepares = packets(agent, events(PAYERS))
    room = 40
    limit = sum(sorted(prepare.amount for prepare in prepares)[-room:])
    peer = Peer("crowd", hash_token(new_token()), max_balance=limit)
    agent.ledger.add_peer(peer)
    replies: list[Fulfill | Reject] = []
    seen: list[int] = []

    def pay(prepare: Prepare) -> None:
        replies.append(send(agent, prepare, peer))
        seen.append(agent.ledger.balance(peer.id).owed)

    at_once([lambda prepare=prepare: pay(prepare) for prepare in prepares])  # type: ignore[misc]

    codes = Counter(code_of(reply) for reply in replies)
    assert codes.keys() == {"fulfilled", "T04"}
    assert codes["fulfilled"] >= room
    assert max(seen) <= limit
    receipts = list(agent.ledger.receipts(peer.id))
    assert len(receipts) == codes["fulfilled"]
    assert agent.ledger.balance(peer.id).owed == sum(each.amount for each in receipts)
    smallest = min(prepare.amount for prepare in prepares)
    assert limit - agent.ledger.balance(peer.id).owed < max(p.amount for p in prepares) + smallest
    assert audit(agent).differences == []


def test_64_payers_with_one_and_the_same_packet(agent: Agent) -> None:
    (prepare,) = packets(agent, events(1))
    replies: list[Fulfill | Reject] = []
    at_once([lambda: replies.append(send(agent, prepare))] * PAYERS)
    assert set(replies) == {replies[0]}
    assert isinstance(replies[0], Fulfill)
    assert posted(agent) == prepare.amount
    assert audit(agent).differences == []


def test_64_payers_for_one_and_the_same_event(agent: Agent) -> None:
    """Each a peer of its own: one pays, the others are refused without charge."""
    (prepare,) = packets(agent, events(1))
    peers = [Peer(f"peer-{index}", f"{index:064x}") for index in range(PAYERS)]
    for peer in peers:
        agent.ledger.add_peer(peer)
    replies: list[Fulfill | Reject] = []
    at_once([lambda peer=peer: replies.append(send(agent, prepare, peer)) for peer in peers])  # type: ignore[misc]
    assert Counter(code_of(reply) for reply in replies) == {"fulfilled": 1, "F99": PAYERS - 1}
    assert sum(posted(agent, peer) for peer in peers) == prepare.amount
    assert audit(agent).differences == []


def test_versions_of_one_address_at_once(agent: Agent) -> None:
    """Whatever comes first, one version stands, and only versions that stood are paid for."""
    secret = (100).to_bytes(32, "big")
    versions = [signed(secret, kind=0, created_at=1_700_000_000 + n) for n in range(16)]
    prepares = [packet(agent, event, secret=secret) for event in versions]
    replies: list[tuple[Event, Fulfill | Reject]] = []
    at_once(
        [
            lambda event=event, prepare=prepare: replies.append((event, send(agent, prepare)))  # type: ignore[misc]
            for event, prepare in zip(versions, prepares, strict=True)
        ]
    )
    assert {code_of(reply) for _, reply in replies} <= {"fulfilled", "F99", "T00"}
    standing = [event for event in versions if agent.events.get(event.id) is not None]
    fulfilled = [event for event, reply in replies if isinstance(reply, Fulfill)]
    assert len(standing) == 1
    assert standing[0].created_at == max(event.created_at for event in fulfilled)
    assert audit(agent).differences == []


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, 40), min_size=2, max_size=24), st.integers(20, 120), st.data())
def test_holds_and_payments_at_once_stay_within_any_limit(
    agent: Agent, amounts: list[int], limit: int, data: st.DataObject
) -> None:
    free = replace(agent, settings=replace(agent.settings, price_per_byte=0))
    peer = Peer(f"p{new_token()}", hash_token(new_token()), max_balance=limit)
    free.ledger.add_peer(peer)
    secret = new_token()
    given = [
        signed((100 + index).to_bytes(32, "big"), content=f"{secret}{index}")
        for index in range(len(amounts))
    ]
    prepares = packets(free, given, amounts)
    holds = [
        Hold(peer.id, f"{index:08x}{index:056x}", amount, 1000)
        for index, amount in enumerate(amounts)
    ]
    seen: list[int] = []

    def pay(prepare: Prepare) -> None:
        send(free, prepare, peer)
        seen.append(free.ledger.balance(peer.id).owed)

    def hold_and_settle(hold: Hold, keep: bool) -> None:
        if free.ledger.hold(hold, limit):
            seen.append(free.ledger.balance(peer.id).owed)
            # An audit adds posted amounts up with receipts, so nothing is posted here.
            assert keep or free.ledger.release(hold)

    kept = [data.draw(st.booleans()) for _ in holds]
    at_once(
        [lambda prepare=prepare: pay(prepare) for prepare in prepares]  # type: ignore[misc]
        + [
            lambda hold=hold, keep=keep: hold_and_settle(hold, keep)  # type: ignore[misc]
            for hold, keep in zip(holds, kept, strict=True)
        ]
    )
    assert max(seen) <= limit
    assert audit(free).differences == []
    free.ledger.release_expired(1000)
    balance = free.ledger.balance(peer.id)
    assert balance.pending == 0
    assert balance.posted == sum(each.amount for each in free.ledger.receipts(peer.id))
