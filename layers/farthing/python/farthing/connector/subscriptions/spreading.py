"""Passing a subscription on to other relays, out of the budget that its owner has named.

Each relay is paid by a packet of our own, for events that it pushes to us. The events are stored
here for a day, numbered, and so reach our subscribers. The payment is taken from the budget before
the packet leaves, so the budget is never exceeded, even after a crash. The packet is stored until
its outcome is known: after a crash the same packet is sent again, or the relay is asked, and an
unpaid amount returns to the budget.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Final, NamedTuple

import orjson

from farthing.btp_nips.answers import read_req_answer
from farthing.btp_nips.codec import decode, encode
from farthing.btp_nips.errors import MessageRefused
from farthing.btp_nips.fees import FeeSchedule, fees_in_tags
from farthing.btp_nips.filter_sets import fingerprint, merge_filters
from farthing.btp_nips.identity import upstream_id
from farthing.btp_nips.messages import Delivery, Metadata, Payment, Propagation, Purpose, Req
from farthing.btp_nips.models import TTL_MIN, Model
from farthing.btp_nips.propagation import onward, share
from farthing.connector.origin import send_own
from farthing.connector.sending import send_free
from farthing.context import Agent
from farthing.ilp.condition import author_fulfillment, condition_of
from farthing.ilp.packet import Fulfill, Prepare, final
from farthing.ilp.reject import NextHopRejected, Rejected
from farthing.nostr.filters import Filter
from farthing.nostr.kinds import Kind
from farthing.store.ledger import Peer
from farthing.store.outgoing_subscriptions import Outgoing
from farthing.store.paid_records import Offer, PaidSubscription

_MOST_RELAYS: Final = 8


class Target(NamedTuple):
    """A relay that a subscription is passed on to."""

    peer: Peer
    fees: FeeSchedule


class Outcome(Enum):
    """The outcome of a payment to another relay."""

    PAID = auto()
    REFUSED = auto()  # nothing was paid
    UNKNOWN = auto()


def targets_of(agent: Agent, subscription: PaidSubscription) -> list[Target]:
    """Peers that sell subscriptions in our own asset, without those that have passed this one
    on."""
    settings, passed = agent.settings, subscription.agreed.path
    found: list[Target] = []
    for peer in agent.ledger.peers():
        is_new = peer.pubkey and peer.pubkey not in passed and peer.id != subscription.agreed.peer
        if not is_new or not peer.takes_packets or peer.pubkey == settings.pubkey:
            continue
        fees = _stated_fees(agent, peer)
        if fees is not None and fees.models & {Model.ONE_TIME}:
            found.append(Target(peer, fees))
        if len(found) == _MOST_RELAYS:
            break
    return found


def _stated_fees(agent: Agent, peer: Peer) -> FeeSchedule | None:
    """The fees in the peer's own kind 10032, if they are in our asset."""
    settings = agent.settings
    wanted = Filter(
        authors=frozenset({peer.pubkey}), kinds=frozenset({Kind.ILP_PEER_INFO}), limit=1
    )
    stored = next(iter(agent.reader.find(wanted)), None)
    if stored is None:
        return None
    tags = stored.event.tags
    told = {tag[0]: tag[1] for tag in tags if len(tag) > 1}
    asset = settings.asset_code, str(settings.asset_scale)
    if (told.get("asset_code"), told.get("asset_scale")) != asset:
        return None
    return fees_in_tags(tags, settings.asset_code, settings.asset_scale)


def offers(agent: Agent, subscription: PaidSubscription) -> Iterator[Callable[[int], Offer | None]]:
    """For each relay, a function that makes its offer from the remaining budget."""
    targets = targets_of(agent, subscription)
    filters = merge_filters(subscription.filters)
    for number, target in enumerate(targets):
        left = len(targets) - number

        def offer(budget: int, target: Target = target, left: int = left) -> Offer | None:
            return _offer(agent, subscription, target, filters, share(budget, 0, left))

        yield offer


def _offer(
    agent: Agent,
    subscription: PaidSubscription,
    target: Target,
    filters: tuple[Filter, ...],
    most: int,
) -> Offer | None:
    """None if the share is too small, or if the relay already has an equal subscription of ours."""
    peer, settings, now = target.peer, agent.settings, agent.now
    ttl = min(subscription.expires_at - now, target.fees.max_ttl)
    if ttl < TTL_MIN:
        return None
    try:
        price = target.fees.terms(Model.ONE_TIME, filters, ttl).least
    except MessageRefused:
        return None
    is_shared = agent.outgoing_subscriptions.is_open(
        peer.pubkey, fingerprint(filters), subscription.expires_at
    )
    if price > most or is_shared:
        return None
    agreed = subscription.agreed
    budget = most - price if agreed.hops > 1 else 0
    received = Metadata(
        now,
        ttl=ttl,
        sender=settings.pubkey,
        delivery=Delivery.PUSH,
        reply_to=settings.own_ilp_address,
        propagate=Propagation(agreed.hops, most),
        path=agreed.path,
    )
    metadata = onward(received, settings.pubkey, agreed.origin, budget)
    if metadata is None:
        return None
    amount = price + budget
    payment = Payment(amount, settings.asset_code, Purpose.SUBSCRIPTION, Model.ONE_TIME)
    id = upstream_id(subscription.owner, subscription.id, peer.pubkey)
    data = encode(Req(id, filters, payment, metadata))
    return Offer(peer.id, amount, data, until=now + ttl)


def make_offer(agent: Agent, offer: Offer, *, is_new: bool, is_wanted: bool) -> Outcome:
    """Subscribe at a relay. If an offer is not new, the relay may have accepted it before a crash.
    If it is no longer wanted either, it is not sent again: the relay is asked for the outcome."""
    peer, req = agent.ledger.peer(offer.peer), decode(offer.data)
    assert isinstance(req, Req)
    outcome = Outcome.UNKNOWN
    if peer is None:
        return Outcome.REFUSED
    if is_wanted:
        outcome = _send(agent, peer, req, offer)
    if not is_new and outcome is not Outcome.PAID:
        outcome = _ask(agent, peer, req, offer)
    if outcome is Outcome.PAID:
        agent.outgoing_subscriptions.share(peer.pubkey, fingerprint(req.filters), offer.until)
    if outcome is Outcome.UNKNOWN and agent.now >= offer.until:
        return Outcome.REFUSED  # our own ledger shows that nothing was paid
    return outcome


def _send(agent: Agent, peer: Peer, req: Req, offer: Offer) -> Outcome:
    text = orjson.dumps([filter.as_dict() for filter in req.filters]).decode()
    outgoing = Outgoing(peer.pubkey, req.subscription_id, is_upstream=True, filters=text)
    agent.outgoing_subscriptions.note(outgoing, offer.until)
    prepare = Prepare(
        amount=offer.amount,
        expires_at=datetime.fromtimestamp(agent.now, UTC),
        condition=condition_of(_fulfillment(agent, peer, offer.data)),
        destination=peer.ilp_address,
        data=offer.data,
    )
    reply = send_own(agent, prepare)
    if isinstance(reply, Fulfill):
        return Outcome.PAID
    return Outcome.REFUSED if final(reply.code) else Outcome.UNKNOWN


def _ask(agent: Agent, peer: Peer, paid: Req, offer: Offer) -> Outcome:
    """Ask the relay whether it has the subscription of this offer."""
    metadata = Metadata(agent.now, sender=agent.settings.pubkey)
    data = encode(Req(paid.subscription_id, (), Payment(), metadata))
    wait = agent.settings.subscription_packet_ms
    try:
        reply = send_free(agent, peer.ilp_address, data, _fulfillment(agent, peer, data), wait)
        answer = read_req_answer(reply.data).answer
    except NextHopRejected as rejected:
        return Outcome.REFUSED if final(rejected.reject.code) else Outcome.UNKNOWN
    except (MessageRefused, Rejected):
        return Outcome.UNKNOWN
    is_it = answer.expires_at_ms >= offer.until * 1000
    return Outcome.PAID if is_it else Outcome.REFUSED


def _fulfillment(agent: Agent, peer: Peer, data: bytes) -> bytes:
    secret = bytes.fromhex(agent.settings.secret_key)
    return author_fulfillment(secret, bytes.fromhex(peer.pubkey), data)
