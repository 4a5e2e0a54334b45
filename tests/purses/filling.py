"""Packets that fill purses, as payers make them."""

import itertools
from typing import Any

from farthing.context import Agent
from farthing.ilp.condition import author_fulfillment, condition_of
from farthing.ilp.packet import TYPE_PREPARE, Fulfill, Prepare, Reject
from farthing.ilp.purse import purse_address, purse_fulfillment
from farthing.ilp.spsp import StreamConnection, connect
from farthing.ilp.stream import StreamPacket, keys_of
from farthing.ilp.stream_frames import Frame, StreamMoney
from farthing.nostr.events import public_key_of
from tests.ilp.paying import expiry, send
from tests.relay.world import ALICE, BOB

KEY, OTHER = public_key_of(ALICE), public_key_of(BOB)
DATA = b"the payer's choice"
TOKEN = bytes(range(16))

_nonces = itertools.count(1)


def fill_packet(agent: Agent, amount: int = 1000, data: bytes = DATA, **changes: Any) -> Prepare:
    """A plain packet into Alice's purse, under her own condition unless told otherwise."""
    own = bytes.fromhex(agent.settings.pubkey)
    fields = {
        "amount": amount,
        "expires_at": expiry(agent),
        "condition": condition_of(author_fulfillment(ALICE, own, data)),
        "destination": str(purse_address(agent.settings.own_ilp_address, bytes.fromhex(KEY))),
        "data": data,
    }
    return Prepare(**{**fields, **changes})


def quoted(agent: Agent, data: bytes = DATA, key: str = KEY) -> bytes:
    owner = bytes.fromhex(agent.settings.secret_key)
    return condition_of(purse_fulfillment(owner, bytes.fromhex(key), data))


def connection(agent: Agent, key: str = KEY, token: bytes = TOKEN) -> StreamConnection:
    owner = bytes.fromhex(agent.settings.secret_key)
    return connect(owner, agent.settings.own_ilp_address, bytes.fromhex(key), token)


def stream_packet(
    agent: Agent,
    amount: int,
    *frames: Frame,
    sequence: int = 1,
    minimum: int = 0,
    to: StreamConnection | None = None,
    **changes: Any,
) -> Prepare:
    to = to or connection(agent)
    keys = keys_of(to.shared_secret)
    request = StreamPacket(sequence, TYPE_PREPARE, minimum, frames or (StreamMoney(1, 1),))
    data = keys.seal(request, next(_nonces).to_bytes(12, "big"))
    fields = {
        "amount": amount,
        "expires_at": expiry(agent),
        "condition": condition_of(keys.fulfil(data)),
        "destination": str(to.destination_account),
        "data": data,
    }
    return Prepare(**{**fields, **changes})


def opened(
    agent: Agent, reply: Fulfill | Reject, to: StreamConnection | None = None
) -> StreamPacket:
    return keys_of((to or connection(agent)).shared_secret).open(reply.data)


def fill(agent: Agent, amount: int, key: str = KEY, mark: str = "gift") -> None:
    """Money in a purse, whoever paid it."""
    assert agent.purses.grant(key, amount, agent.now_ms, mark)


def fill_by_packet(agent: Agent, amount: int, data: bytes = DATA) -> None:
    assert isinstance(send(agent, fill_packet(agent, amount, data)), Fulfill)
