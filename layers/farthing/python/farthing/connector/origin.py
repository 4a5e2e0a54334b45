"""Packets of our own: the agent is the payer, and its connector sends them on without a fee.

They have an account of their own in the ledger. So they are held, settled and audited as packets of
any peer, and a packet that is sent again, after a crash say, is answered from its receipt.
"""

import logging
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
from farthing.connector.steps import Step
from farthing.context import Agent
from farthing.ilp.packet import Code, Fulfill, Prepare, Reject, to_milliseconds
from farthing.ilp.reject import NextHopRejected, Rejected
from farthing.store.ledger import Peer, PeerExists, hash_token

log = logging.getLogger("farthing")

ACCOUNT = "broadcasts"
# No longer: what was under way when we crashed is sent again only after its packet has expired.
PACKET_SECONDS = 15
# What bounds it is the budget of broadcasts, which is checked before.
_WITHOUT_LIMIT = 2**63 - 1


def leave_as_it_is(agent: Agent, packet: IncomingPacket) -> None:
    """Our own packet leaves with all that it carries."""
    expires = datetime.fromtimestamp(agent.now, UTC) + timedelta(seconds=PACKET_SECONDS)
    packet.onward = replace(packet.prepare, expires_at=to_milliseconds(expires))


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
    packet.expires_ms = round(packet.prepare.expires_at.timestamp() * 1000)
    try:
        for step in OWN:
            reply = step(agent, packet)
            if reply is not None:
                return reply
    except Rejected as rejected:
        return Reject(
            rejected.code, agent.settings.own_ilp_address, rejected.message, rejected.data
        )
    except NextHopRejected as rejected:
        return rejected.reject
    except Exception:
        log.exception("a packet of our own failed")
    return Reject(Code.T00_INTERNAL_ERROR, agent.settings.own_ilp_address, "internal error")


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
