"""Packets of our own: the agent is the payer, and its connector sends them on without a fee.

Our own packets have an account in the ledger. So they are held, settled and audited like the
packets of any peer. A packet that is sent again, for example after a crash, is answered from its
receipt.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from secrets import token_hex

from farthing.connector.forwarding import (
    answer_repeat,
    choose_next_hop,
    hold_amount,
    packet_digest,
    send_onward,
    settle,
)
from farthing.connector.incoming import IncomingPacket
from farthing.connector.steps import Step, reply_to
from farthing.context import Agent
from farthing.ilp.packet import Fulfill, Prepare, Reject, to_milliseconds
from farthing.store.ledger import Peer, PeerExists, hash_token

ACCOUNT = "broadcasts"
# The longest lifetime of a packet: after a crash, an unanswered packet is sent again only after its
# expiry.
PACKET_SECONDS = 15
# The account's limit is not needed: the budget of broadcasts is checked before.
_WITHOUT_LIMIT = 2**63 - 1


def leave_as_it_is(_agent: Agent, packet: IncomingPacket) -> None:
    """A packet of our own leaves unchanged: we charge ourselves no fee."""
    packet.onward = packet.prepare


OWN: Sequence[Step] = (
    answer_repeat,
    choose_next_hop,
    leave_as_it_is,
    hold_amount,
    send_onward,
    settle,
)


def send_own(agent: Agent, prepare: Prepare) -> Fulfill | Reject:
    """Pay with a packet of our own. A returned Fulfill has been checked against the condition."""
    now_ms = agent.now_ms
    packet = IncomingPacket(_account(agent), b"", now_ms)
    expires = datetime.fromtimestamp(now_ms // 1000, UTC) + timedelta(seconds=PACKET_SECONDS)
    packet.prepare = replace(prepare, expires_at=to_milliseconds(expires))
    # The next hop may fulfil at the last moment, and then there must be time to settle.
    margin_ms = agent.settings.forward_margin_ms
    packet.expires_ms = round(packet.prepare.expires_at.timestamp() * 1000) + margin_ms
    return reply_to(agent, packet, lambda *_: OWN)


def name_of(prepare: Prepare) -> str:
    """The name under which a packet of our own has its receipt."""
    return f"{prepare.condition.hex()}#{packet_digest(prepare)}"


def was_fulfilled(agent: Agent, name: str) -> bool:
    """Whether a packet of our own has been fulfilled and settled."""
    condition, _, digest = name.partition("#")
    return agent.ledger.forwarded_before(ACCOUNT, condition, digest) is not None


def _account(agent: Agent) -> Peer:
    found = agent.ledger.peer(ACCOUNT)
    if found is not None:
        return found
    # Nobody knows the account's token, and no HTTP request can use the account.
    account = Peer(
        ACCOUNT, hash_token(token_hex(32)), max_balance=_WITHOUT_LIMIT, max_packet=_WITHOUT_LIMIT,
        asset_code=agent.settings.asset_code, asset_scale=agent.settings.asset_scale, active=False,
    )  # fmt: skip
    with suppress(PeerExists):  # another call has just made it
        agent.ledger.add_peer(account)
    return account
