"""The audit of the ledger: balances against receipts and holds, receipts against events, and events
against receipts.

Prices are today's: an event that was stored while its kind or its author was free counts as unpaid
if it would cost something today. Of a replaceable event only the current version is checked, since
a replaced version looks the same as a lost one.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice

import orjson

from farthing.btp_nips.identity import Owner, owner_pubkey
from farthing.context import Agent
from farthing.nostr.events import InvalidEvent, event_id, parse_event
from farthing.nostr.kinds import Keeping, keeping
from farthing.relay.price import writes_free
from farthing.store.events import StoredEvent
from farthing.store.payment import BORROWED, OWNER, ROOM
from farthing.store.postings import posting_of
from farthing.store.purses import MovementKind, Purse, Way, reference_of
from farthing.store.receipts import FREE, Forwarded, PurseFilled, Receipt, Stored, Subscribed
from farthing.store.spaces import NOSTR, SPACES
from farthing.store.table import Query, Table, read_all

_EVENTS_AT_ONCE = 100
# Aether events of kinds below this one are never replaced.
_FIRST_NOT_KEPT = 10_000
_UNPAID = frozenset({OWNER.reference, ROOM.reference, BORROWED})


@dataclass
class Audit:
    """The findings. Each part of the audit records here the sums that later parts compare."""

    peers: int = 0
    receipts: int = 0
    events: int = 0
    posted: int = 0
    pending: int = 0
    fees: int = 0  # our fees for forwarded packets
    purses: int = 0
    left: int = 0  # in all purses
    subscriptions: int = 0  # number of open paid subscriptions
    credit: int = 0  # of all open subscriptions
    differences: list[str] = field(default_factory=list)

    accounts: list[str] = field(default_factory=list)
    # (reference, event id) of every paid event
    paid_events: set[tuple[str, str]] = field(default_factory=set)
    onward: Counter[str] = field(default_factory=Counter)  # amounts due to each next hop
    into_purses: Counter[str] = field(default_factory=Counter)  # paid by packet into each purse
    # Amounts that each owner's packets have paid beyond the prices of subscriptions
    credited: Counter[str] = field(default_factory=Counter)
    # Amounts that each purse has paid for subscriptions, less refunds
    for_subscriptions: Counter[str] = field(default_factory=Counter)

    def differ(self, difference: str) -> None:
        self.differences.append(difference)

    def compare(self, whose: str, name: str, kept: int, found: int) -> None:
        if kept != found:
            self.differ(f"{whose}: {name} is {kept} and adds up to {found}")


def audit(agent: Agent) -> Audit:
    """Sums of the books, and every difference that was found in them."""
    result = Audit(accounts=agent.ledger.account_ids())
    for part in PARTS:
        part(agent, result)
    return result


def audit_peers(agent: Agent, result: Audit) -> None:
    """Every look-up record of a peer belongs to that peer."""
    for peer_id in result.accounts:
        result.peers += 1
        peer = agent.ledger.peer(peer_id)
        if peer is None:
            continue
        for name, record in agent.ledger.records_of(peer).items():
            if record != peer:
                result.differ(
                    f"peer {peer_id}: the record under its {name} belongs to another peer"
                )


def audit_accounts(agent: Agent, result: Audit) -> None:
    """Balances add up to receipts, settlements and holds."""
    held: Counter[str] = Counter()
    for hold in agent.ledger.holds():
        held[hold.peer] += hold.amount
    for stranger in held.keys() - set(result.accounts):
        result.differ(f"{held[stranger]} held for {stranger}, which was never a peer")
    for peer_id in result.accounts:
        _audit_account(agent, peer_id, held[peer_id], result)


def _audit_account(agent: Agent, peer_id: str, held: int, result: Audit) -> None:
    total = 0
    for receipt in agent.ledger.receipts(peer_id):
        result.receipts += 1
        total += receipt.amount
        _audit_receipt(agent, receipt, result)
    balance = agent.ledger.balance(peer_id)
    result.posted += balance.posted
    result.pending += balance.pending
    total -= _settled(agent, peer_id, received=True)
    whose = f"peer {peer_id}"
    result.compare(whose, "posted", balance.posted, total)
    result.compare(whose, "pending", balance.pending, held)
    result.compare(whose, "owed", balance.owed, balance.posted + balance.pending)


def audit_payables(agent: Agent, result: Audit) -> None:
    """Our debt to each next hop is the sum of the forwarded packets, less our settlements."""
    for stranger in result.onward.keys() - set(result.accounts):
        result.differ(f"packets were forwarded to {stranger}, which was never a peer")
    for peer_id in {*result.accounts, *result.onward}:
        payable = agent.ledger.balance(peer_id).payable
        due = result.onward[peer_id] - _settled(agent, peer_id, received=False)
        result.compare(f"peer {peer_id}", "payable", payable, due)


def _settled(agent: Agent, peer_id: str, *, received: bool) -> int:
    """The sum of settlements outside of Interledger, by the peer or by us."""
    made = agent.settlements.of(peer_id)
    return sum(each.amount for each in made if each.received is received)


def _audit_receipt(agent: Agent, receipt: Receipt, result: Audit) -> None:
    name = f"receipt {receipt.condition[:16]} of peer {receipt.peer}"
    if receipt.amount < receipt.price:
        result.differ(f"{name} is below its price")
    if sha256(bytes.fromhex(receipt.fulfillment)).hexdigest() != receipt.condition:
        result.differ(f"{name} has a fulfillment that does not hash to its condition")
    match receipt.purpose:
        case Stored() as stored:
            result.paid_events.add((receipt.reference, stored.event_id))
            if not _was_stored(agent, stored):
                result.differ(f"{name} is for event {stored.event_id}, which was never stored")
        case Forwarded() as forwarded:
            result.onward[forwarded.next_hop] += forwarded.outgoing
            result.fees += receipt.price
            result.compare(name, "fee", receipt.price, receipt.amount - forwarded.outgoing)
        case PurseFilled(key):
            result.into_purses[key] += receipt.amount
        case Subscribed(owner):
            result.credited[owner] += receipt.amount - receipt.price


def audit_purses(agent: Agent, result: Audit) -> None:
    """Each purse's totals agree with its movements, and with the packets that paid into it."""
    audited = set()
    for purse in agent.purses.all():
        audited.add(purse.key)
        result.purses += 1
        result.left += purse.left
        _audit_purse(agent, purse, result)
    for key in result.into_purses.keys() - audited:
        result.differ(f"packets paid {result.into_purses[key]} into purse {key}, which is unknown")


def _audit_purse(agent: Agent, purse: Purse, result: Audit) -> None:
    sums: Counter[str] = Counter()
    by_packet = 0
    for movement in agent.purses.movements(purse.key):
        sums[movement.kind] += movement.amount
        if movement.way in (Way.PACKET, Way.STREAM):
            by_packet += movement.amount
        if movement.way is Way.SUBSCRIPTION:
            is_draw = movement.kind is MovementKind.DRAWN
            result.for_subscriptions[purse.key] += movement.amount if is_draw else -movement.amount
        if movement.kind is MovementKind.DRAWN and movement.way is Way.EVENT:
            stored = Stored(**movement.detail)
            result.paid_events.add((reference_of(purse.key), stored.event_id))
            if not _was_stored(agent, stored):
                result.differ(f"purse {purse.key} paid for event {stored.event_id}, never stored")
    whose = f"purse {purse.key}"
    result.compare(whose, "filled", purse.filled, sums[MovementKind.FILLED])
    result.compare(whose, "granted", purse.granted, sums[MovementKind.GRANTED])
    drawn = sums[MovementKind.DRAWN] + sums[MovementKind.LAPSED]
    result.compare(whose, "drawn", purse.drawn, drawn)
    result.compare(whose, "left", purse.left, purse.filled + purse.granted - purse.drawn)
    result.compare(whose, "paid in by packet", result.into_purses[purse.key], by_packet)
    if purse.left < 0:
        result.differ(f"{whose} is below zero: {purse.left}")


def audit_subscriptions(agent: Agent, result: Audit) -> None:
    """The payments for subscriptions add up: prices, spent credit, remaining credit and refunds."""
    owners = set(agent.paid_subscriptions.owners())
    for owner in sorted(owners | set(map(Owner, result.credited))):
        _audit_owner(agent, owner, result)
    strangers = result.for_subscriptions.keys() - {owner_pubkey(owner) for owner in owners}
    for key in strangers:
        result.differ(f"purse {key} paid for subscriptions, but its key has none")


def _audit_owner(agent: Agent, owner: Owner, result: Audit) -> None:
    totals, whose = agent.paid_subscriptions.totals(owner), f"subscriptions of {owner}"
    credited, refilled, number = totals.credited, totals.refilled, 0
    result.compare(whose, "spent", totals.spent + totals.returned, credited + refilled)
    for each in agent.paid_subscriptions.of(owner, agent.now):
        if each.state.has_ended:
            continue
        number += 1
        left = each.account.credit + each.budget
        name = f"subscription {each.id!r} of {owner}"
        result.compare(name, "credit", left, each.credited + each.refilled - each.account.spent)
        if each.account.credit < 0 or each.budget < 0:
            result.differ(f"{name} is below zero")
        credited, refilled = credited + each.credited, refilled + each.refilled
        result.credit += left
    result.subscriptions += number
    result.compare(whose, "open", totals.open, number)
    result.compare(whose, "credited", credited, result.credited[owner])
    from_purse = result.for_subscriptions[owner_pubkey(owner) or ""]
    drawn = from_purse - agent.subscription_funds.rest(owner)
    result.compare(whose, "drawn", drawn, refilled - totals.returned)


def _was_stored(agent: Agent, stored: Stored) -> bool:
    """Whether the event was stored. An event that was replaced, deleted or has expired counts as
    stored."""
    space = next(each for each in SPACES if each.name == stored.space)
    if space is NOSTR and keeping(stored.kind) is not Keeping.REGULAR:
        return True
    if space is not NOSTR and stored.kind >= _FIRST_NOT_KEPT:
        return True
    has_expired = stored.event_expires is not None and stored.event_expires <= agent.now
    return has_expired or agent.kept(space).events.was_here(stored.event_id)


def audit_events(agent: Agent, result: Audit) -> None:
    """Every event is unaltered since its author signed it, and is paid for unless it was free."""
    for event in _stored_events(agent):
        result.events += 1
        if not _is_unaltered(event):
            result.differ(f"event {event.id} has been altered since it was stored")
        came_free = event.payment is None or event.payment.startswith(FREE)
        if came_free and _ought_to_be_paid(agent, event):
            result.differ(f"event {event.id} is stored without payment")
        if came_free or event.payment in _UNPAID:
            continue
        if (event.payment, event.id) not in result.paid_events:
            result.differ(f"event {event.id} names a payment without a receipt")


def _is_unaltered(stored: StoredEvent) -> bool:
    """Whether the event still hashes to its id, and the fields stored beside the event agree with
    it."""
    try:
        event = parse_event(orjson.loads(stored.json))
    except (InvalidEvent, ValueError):
        return False
    kept = (stored.id, stored.pubkey, stored.kind, stored.created_at)
    return kept == (event_id(event), event.pubkey, event.kind, event.created_at)


def _stored_events(agent: Agent) -> Iterator[StoredEvent]:
    for pk in agent.events.lists.everything():
        rows = iter(read_all(agent.engine, Query(Table.POSTINGS, pk, limit=_EVENTS_AT_ONCE)))
        while some := [posting_of(row).id for row in islice(rows, _EVENTS_AT_ONCE)]:
            yield from agent.events.get_many(some).values()


def _ought_to_be_paid(agent: Agent, event: StoredEvent) -> bool:
    settings = agent.settings
    return not writes_free(agent, event.pubkey) and settings.tariff.may_charge(event.kind)


def _audit_aether(agent: Agent, result: Audit) -> None:
    # Imported here because the import is slow.
    from farthing.agent.aether_audit import audit_aether_events

    audit_aether_events(agent, result)


# A protocol with its own books adds its part here. If it pays for events, the part stands before
# the audit of events.
PARTS: Sequence[Callable[[Agent, Audit], None]] = (
    audit_peers,
    audit_accounts,
    audit_payables,
    audit_purses,
    audit_subscriptions,
    audit_events,
    _audit_aether,
)
