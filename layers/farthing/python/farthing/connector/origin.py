"""Packets of our own: the agent is the payer, and its connector sends them on without a fee.

They have an account of their own in the ledger. So they are held, settled and audited as packets of
any peer, and a packet that is sent again, after a crash say, is answered from its receipt.
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
    send_onward,
    settle,
)
from farthing.connector.incoming import IncomingPacket
from farthing.connector.steps import Step, reply_to
from farthing.context import Agent
from farthing.ilp.packet import Fulfill, Prepare, Reject, to_milliseconds
from farthing.store.ledger import Peer, PeerExists, hash_token

ACCOUNT = "broadcasts"
# No longer: what was under way when we crashed is sent again only after its packet has expired.
PACKET_SECONDS = 15
# What bounds it is the budget of broadcasts, which is checked before.
_WITHOUT_LIMIT = 2**63 - 1


def leave_as_it_is(_agent: Agent, packet: IncomingPacket) -> None:
    """Our own packet leaves with all that it carries."""
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
    """Pay with a packet of our own; a Fulfill is a true one."""
    packet = IncomingPacket(_account(agent), b"")
    expires = datetime.fromtimestamp(agent.now, UTC) + timedelta(seconds=PACKET_SECONDS)
    packet.prepare = replace(prepare, expires_at=to_milliseconds(expires))
    # The next hop may fulfil at the last moment, and then there must be time to settle.
    margin_ms = agent.settings.forward_margin_ms
    packet.expires_ms = round(packet.prepare.expires_at.timestamp() * 1000) + margin_ms
    return reply_to(agent, packet, lambda *_: OWN)


def _account(agent: Agent) -> Peer:
    found = agent.ledger.peer(ACCOUNT)
    if found is not None:
        return found
    # Nobody has its token, and nothing is taken from it by HTTP.
    account = Peer(
        ACCOUNT, hash_token(token_hex(32)), max_balance=_WITHOUT_LIMIT, max_packet=_WITHOUT_LIMIT,
        asset_code=agent.settings.asset_code, asset_scale=agent.settings.asset_scale, active=False,
    )  # fmt: skip
    with suppress(PeerExists):  # another call has just made it
        agent.ledger.add_peer(account)
    return account
