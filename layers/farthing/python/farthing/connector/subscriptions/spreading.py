"""Passing a subscription on to other relays, out of the budget that its owner has named.

Each relay is paid by a packet of our own, for events that it pushes to us. They are stored here for
a day, numbered, and so reach our subscribers. What is to be paid is taken from the budget before
the packet leaves, so the budget is never exceeded, whatever breaks in between.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

import orjson

from farthing.btp_nips.codec import encode
from farthing.btp_nips.errors import MessageRefused
from farthing.btp_nips.fees import FeeSchedule, fees_in_tags
from farthing.btp_nips.filter_sets import fingerprint, merge_filters
from farthing.btp_nips.identity import upstream_id
from farthing.btp_nips.messages import (
    TTL_MIN,
    Delivery,
    Metadata,
    Model,
    Payment,
    Propagation,
    Purpose,
    Req,
)
from farthing.btp_nips.propagation import share
from farthing.connector.origin import send_own
from farthing.context import Agent
from farthing.ilp.condition import author_fulfillment, condition_of
from farthing.ilp.packet import Fulfill, Prepare
from farthing.nostr.filters import Filter
from farthing.nostr.kinds import Kind
from farthing.store.ledger import Peer
from farthing.store.outgoing_subscriptions import Outgoing
from farthing.store.paid_subscriptions import PaidSubscription

_MOST_RELAYS: Final = 8


class Target(NamedTuple):
    """A relay that a subscription is passed on to."""

    peer: Peer
    fees: FeeSchedule


class Offer(NamedTuple):
    """What a relay is asked for, and paid."""

    peer: Peer
    req: Req
    amount: int


def targets_of(agent: Agent, subscription: PaidSubscription) -> list[Target]:
    """Peers that sell subscriptions in our own asset, but for those that it has come through."""
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
    """What the peer's own kind 10032 says, where it is in our asset."""
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
    """For each relay, what to ask of it once it is known how much of the budget is left."""
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
    """None where the share does not reach, or an equal subscription stands there already."""
    peer, settings = target.peer, agent.settings
    ttl = min(subscription.expires_at - agent.now, target.fees.max_ttl)
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
    hops = subscription.agreed.hops - 1
    onward = most - price if hops else 0
    metadata = Metadata(
        agent.now,
        ttl=ttl,
        sender=settings.pubkey,
        delivery=Delivery.PUSH,
        reply_to=settings.own_ilp_address,
        propagate=Propagation(hops, onward) if hops else None,
        path=(*subscription.agreed.path, settings.pubkey),
        origin=subscription.agreed.origin,
    )
    amount = price + onward
    payment = Payment(amount, settings.asset_code, Purpose.SUBSCRIPTION, Model.ONE_TIME)
    id = upstream_id(subscription.owner, subscription.id, peer.pubkey)
    return Offer(peer, Req(id, filters, payment, metadata), amount)


def send_offer(agent: Agent, offer: Offer, until: int) -> bool:
    """Subscribe at a relay. False if it has refused, and then nothing was paid."""
    peer, req = offer.peer, offer.req
    text = orjson.dumps([filter.as_dict() for filter in req.filters]).decode()
    outgoing = Outgoing(peer.pubkey, req.subscription_id, is_upstream=True, filters=text)
    agent.outgoing_subscriptions.note(outgoing, until)
    data = encode(req)
    secret = bytes.fromhex(agent.settings.secret_key)
    fulfillment = author_fulfillment(secret, bytes.fromhex(peer.pubkey), data)
    prepare = Prepare(
        amount=offer.amount,
        expires_at=datetime.fromtimestamp(agent.now, UTC),
        condition=condition_of(fulfillment),
        destination=peer.ilp_address,
        data=data,
    )
    if not isinstance(send_own(agent, prepare), Fulfill):
        return False
    agent.outgoing_subscriptions.share(peer.pubkey, fingerprint(req.filters), until)
    return True
