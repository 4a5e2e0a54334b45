"""Proof that a subscriber receives at its address, before money moves: nobody may direct deliveries
at somebody else's address.

We send one AUTH packet with a challenge. Only the owner's key can fulfil it. If an attacker names a
victim's address, the victim gets one small packet, and no more for a while.
"""

from secrets import token_bytes
from typing import Final

from farthing.btp_nips.conditions import fulfillment_for
from farthing.btp_nips.errors import (
    AddressRefused,
    AddressSilent,
    NoTimeForProof,
    RateExceeded,
)
from farthing.btp_nips.messages import CHALLENGE_LENGTH
from farthing.connector.sending import has_way, send_free
from farthing.connector.subscriptions.answering import messages_of
from farthing.context import Agent
from farthing.ilp.packet import final
from farthing.ilp.reject import NextHopRejected, Rejected
from farthing.store.paid_records import PaidSubscription

# Time that must be left for the answer to the packet that waits for the proof.
_MARGIN_MS: Final = 500
# Challenges that one address gets in a minute, from all senders together.
_CHALLENGES_A_MINUTE: Final = 5


def prove_address(agent: Agent, subscription: PaidSubscription, milliseconds: int) -> None:
    """Returns if the owner has proven its address within the last day, or proves it now."""
    store, address = agent.paid_subscriptions, subscription.agreed.reply_to
    if store.is_proven(subscription.owner, address):
        return
    if not has_way(agent, address):
        raise AddressRefused(f"no route to {address}")
    wait = agent.settings.subscription_handshake_ms
    if milliseconds - _MARGIN_MS < wait:
        raise NoTimeForProof(f"expected {wait + _MARGIN_MS} ms until the packet expires")
    if store.was_refused(subscription.owner, address):
        raise AddressRefused("the address has refused the proof a moment ago")
    if agent.sessions.count_packet(f"proof#{address}", agent.now) > _CHALLENGES_A_MINUTE:
        raise RateExceeded("the address was challenged too often in this minute")
    _challenge(agent, subscription, wait)
    store.prove(subscription.owner, address, agent.now)


def _challenge(agent: Agent, subscription: PaidSubscription, milliseconds: int) -> None:
    address = subscription.agreed.reply_to
    octets = token_bytes(CHALLENGE_LENGTH)
    data = messages_of(agent, subscription).challenge(octets, agent.now).envelope
    secret = bytes.fromhex(agent.settings.secret_key)
    fulfillment = fulfillment_for(subscription.owner, secret, data)
    try:
        send_free(agent, address, data, fulfillment, milliseconds)
    except NextHopRejected as rejected:
        if not final(rejected.reject.code):
            raise AddressSilent(f"{address} cannot be reached: {rejected.reject.code}") from None
        agent.paid_subscriptions.refuse(subscription.owner, address, agent.now)
        raise AddressRefused(f"{address} has refused the proof") from None
    except Rejected as rejected:
        raise AddressSilent(f"no answer from {address}: {rejected.message}") from None
