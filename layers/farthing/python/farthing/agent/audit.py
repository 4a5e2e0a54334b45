"""Adding the ledger up: balances against receipts and holds, receipts against events, and back.

Prices are today's: an event that was stored while its kind was free, or by its then free author,
counts as unpaid once it would cost something. Of replaceable events only the version that stands is
checked, since nothing tells one that was replaced from one that was lost.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice

from farthing.context import Agent
from farthing.nostr.kinds import Keeping, keeping
from farthing.relay.price import writes_free
from farthing.store.events import StoredEvent
from farthing.store.ledger import Receipt
from farthing.store.payment import OWNER
from farthing.store.postings import posting_of
from farthing.store.table import Query, Table, read_all

_EVENTS_AT_ONCE = 100


@dataclass
class Audit:
    peers: int = 0
    receipts: int = 0
    events: int = 0
    posted: int = 0
    pending: int = 0
    differences: list[str] = field(default_factory=list)


def audit(agent: Agent) -> Audit:
    """What is kept, and everything in it that does not agree with the rest."""
    result = Audit()
    accounts = agent.ledger.account_ids()
    held: Counter[str] = Counter()
    for hold in agent.ledger.holds():
        held[hold.peer] += hold.amount
    for stranger in held.keys() - set(accounts):
        result.differences.append(f"{held[stranger]} held of {stranger}, who was never a peer")
    paid = _Paid()
    for peer_id in accounts:
        result.peers += 1
        _audit_peer(agent, peer_id, result)
        _audit_account(agent, peer_id, held[peer_id], result, paid)
    for peer_id in {*accounts, *paid.onward}:
        payable = agent.ledger.balance(peer_id).payable
        due = paid.onward[peer_id] - _settled(agent, peer_id, received=False)
        _compare(result, peer_id, "payable", payable, due)
    _audit_events(agent, result, paid)
    return result


@dataclass
class _Paid:
    """What receipts say: (reference, event id) of what was stored, and what is due to whom."""

    events: set[tuple[str, str]] = field(default_factory=set)
    onward: Counter[str] = field(default_factory=Counter)


def _audit_peer(agent: Agent, peer_id: str, result: Audit) -> None:
    peer = agent.ledger.peer(peer_id)
    if peer is not None and agent.ledger.peer_by_token_hash(peer.token_hash) != peer:
        result.differences.append(f"peer {peer_id}: its token does not lead to it")


def _audit_account(agent: Agent, peer_id: str, held: int, result: Audit, paid: _Paid) -> None:
    total = 0
    for receipt in agent.ledger.receipts(peer_id):
        result.receipts += 1
        total += receipt.amount
        paid.events.add((receipt.reference, receipt.event_id))
        if receipt.next_hop:
            paid.onward[receipt.next_hop] += receipt.outgoing
        _audit_receipt(agent, receipt, result)
    balance = agent.ledger.balance(peer_id)
    result.posted += balance.posted
    result.pending += balance.pending
    total -= _settled(agent, peer_id, received=True)
    _compare(result, peer_id, "posted", balance.posted, total)
    _compare(result, peer_id, "pending", balance.pending, held)
    _compare(result, peer_id, "owed", balance.owed, balance.posted + balance.pending)


def _settled(agent: Agent, peer_id: str, *, received: bool) -> int:
    """What was settled outside of Interledger, by the peer or by us."""
    made = agent.settlements.of(peer_id)
    return sum(each.amount for each in made if each.received is received)


def _compare(result: Audit, peer_id: str, name: str, kept: int, found: int) -> None:
    if kept != found:
        result.differences.append(f"peer {peer_id}: {name} is {kept} and adds up to {found}")


def _audit_receipt(agent: Agent, receipt: Receipt, result: Audit) -> None:
    differ = result.differences.append
    if receipt.amount < receipt.price:
        differ(f"receipt for {receipt.event_id} is below its price")
    if sha256(bytes.fromhex(receipt.fulfillment)).hexdigest() != receipt.condition:
        differ(f"receipt for {receipt.event_id} has a preimage of another condition")
    if not _was_stored(agent, receipt):
        differ(f"receipt for {receipt.event_id}, which was never stored")


def _was_stored(agent: Agent, receipt: Receipt) -> bool:
    """An event that has been replaced, deleted or has expired since was stored all the same. A
    packet that was forwarded stored nothing here."""
    if receipt.next_hop or keeping(receipt.kind) is not Keeping.REGULAR:
        return True
    has_expired = receipt.event_expires is not None and receipt.event_expires <= agent.now
    return has_expired or agent.events.was_here(receipt.event_id)


def _audit_events(agent: Agent, result: Audit, paid: _Paid) -> None:
    for event in _stored_events(agent):
        result.events += 1
        if event.payment is None and _ought_to_be_paid(agent, event):
            result.differences.append(f"event {event.id} is stored without payment")
        if event.payment == OWNER.reference:
            continue
        if event.payment is not None and (event.payment, event.id) not in paid.events:
            result.differences.append(f"event {event.id} names a payment without a receipt")


def _stored_events(agent: Agent) -> Iterator[StoredEvent]:
    for pk in agent.events.lists.everything():
        rows = iter(read_all(agent.engine, Query(Table.POSTINGS, pk, limit=_EVENTS_AT_ONCE)))
        while some := [posting_of(row).id for row in islice(rows, _EVENTS_AT_ONCE)]:
            yield from agent.events.get_many(some).values()


def _ought_to_be_paid(agent: Agent, event: StoredEvent) -> bool:
    settings = agent.settings
    return not writes_free(settings, event.pubkey) and settings.tariff.may_charge(event.kind)
