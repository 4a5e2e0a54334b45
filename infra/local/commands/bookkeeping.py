"""`farthing peers` and `farthing audit`: an operator's work on the ledger, on one machine or in the
cloud."""

from argparse import Namespace
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from farthing.agent.audit import audit as audit_ledger
from farthing.agent.relay_client import SocketRelays
from farthing.aws.broadcast_wakes import SqsBroadcastWakes
from farthing.aws.outbound import HttpOutbound
from farthing.connector.known_peers import known_peers, max_balance, max_packet
from farthing.connector.peering import incoming_token
from farthing.context import Agent
from farthing.ilp.money import with_units
from farthing.ilp.tokens import is_strong, new_token, seal
from farthing.ports.broadcast_wakes import BroadcastWakes, NoBroadcastWakes
from farthing.ports.hosts import HostRules
from farthing.ports.outbound import origin_of
from farthing.settings import Settings
from farthing.store.dynamodb import DynamoDBEngine
from farthing.store.ledger import LedgerError, Peer
from farthing.store.sqlite import SqliteEngine
from infra.local.commands.deployed import queue_url
from infra.local.server.identity import with_identity
from infra.local.server.peers import new_peer


class BookkeepingError(Exception):
    """The command cannot be carried out; the message says why."""


DEFAULT = "default"  # a limit of this value is the one of the settings

ERRORS = (BookkeepingError,)


class _Nobody:
    """An agent without clients."""

    frames_fail_alone = False

    def post(self, *_: object) -> None: ...

    def post_each(self, _: object) -> dict[str, object]:
        return {}

    def close(self, _: str) -> None: ...


@contextmanager
def offline_agent(settings: Settings) -> Iterator[Agent]:
    """The agent without its server, on the data folder or on the tables of a deployment. A server
    may be running on the same data."""
    engine: DynamoDBEngine | SqliteEngine
    wakes: BroadcastWakes = NoBroadcastWakes()
    rules = HostRules(settings.allow_private_hosts)
    if settings.deployed:
        engine = DynamoDBEngine(settings.table_prefix)
        wakes = SqsBroadcastWakes(lambda: queue_url(settings, "broadcasts"))
    else:
        engine = SqliteEngine(Path(settings.data))
    try:
        yield Agent(
            with_identity(settings), engine, _Nobody(),  # type: ignore[arg-type]
            outbound=HttpOutbound(rules), relays=SocketRelays(rules), broadcast_wakes=wakes,
        )  # fmt: skip
    finally:
        engine.close()


def add_peer(arguments: Namespace, settings: Settings) -> int:
    owner = bytes.fromhex(with_identity(settings).secret_key)
    derived = incoming_token(owner, arguments.pubkey) if arguments.pubkey else ""
    token = arguments.token or derived or new_token()
    if not is_strong(token):
        raise BookkeepingError("expected a token of at least 32 random bytes, got a weaker one")
    _check_endpoint(arguments.endpoint)
    with offline_agent(settings) as agent:
        secret = new_token() if arguments.jwt else ""
        outgoing = arguments.outgoing_token
        peer = new_peer(
            arguments.id, token, agent.settings, ilp_address=arguments.address,
            endpoint=arguments.endpoint, max_balance=arguments.max_balance,
            max_packet=arguments.max_packet, pubkey=arguments.pubkey,
            jwt_secret=seal(owner, arguments.id, secret.encode()) if secret else None,
            outgoing_token=seal(owner, arguments.id, outgoing.encode()) if outgoing else None,
        )  # fmt: skip
        try:
            agent.ledger.add_peer(peer)
        except LedgerError as error:
            raise BookkeepingError(str(error)) from None
        credit = _credit(agent, peer)
    code, scale = settings.asset_code, settings.asset_scale
    print(f"peer {arguments.id} added. It may owe us {with_units(credit, code, scale)}.")
    print("The secrets below are shown once and not stored.")
    if derived:
        print("token       derived from both keys: the peer can compute it, too")
    elif not arguments.token:
        print(f"token       {token}")
    if secret:
        print(f"JWT secret  {secret}")
    return 0


def list_peers(_arguments: Namespace, settings: Settings) -> int:
    with offline_agent(settings) as agent:
        print(f"{'peer':<20}{'posted':>16}{'pending':>16}{'maximum':>20}  address")
        for peer in agent.ledger.peers():
            balance = agent.ledger.balance(peer.id)
            most = _credit(agent, peer)
            print(
                f"{peer.id:<20}{balance.posted:>16}{balance.pending:>16}{most:>20}"
                f"  {peer.ilp_address or '-'}{'' if peer.active else '  (not active)'}"
            )
    return 0


def _credit(agent: Agent, peer: Peer) -> int:
    return max_balance(agent, known_peers(agent).with_limit(peer))


def show_peer(arguments: Namespace, settings: Settings) -> int:
    with offline_agent(settings) as agent:
        peer = _known(agent, arguments.id)
        balance = agent.ledger.balance(peer.id)
        rows = {
            "peer": peer.id,
            "address": peer.ilp_address or "-",
            "endpoint": peer.endpoint or "-",
            "asset": f"{peer.asset_code}, scale {peer.asset_scale}",
            "posted": balance.posted,
            "pending": balance.pending,
            "max balance": _credit(agent, peer),
            "max packet": max_packet(agent, peer),
            "active": "yes" if peer.active else "no: farthing peers set ID --active",
            "from follows": "yes" if peer.from_follows else "no",
            "JWT": "yes" if peer.jwt_secret else "no",
            "receipts": sum(1 for _ in agent.ledger.receipts(peer.id)),
        }
    for name, value in rows.items():
        print(f"{name:<14}{value}")
    return 0


def set_peer(arguments: Namespace, settings: Settings) -> int:
    """Change only the fields that were given."""
    names = ("max_balance", "max_packet", "endpoint", "active")
    given = {name: getattr(arguments, name) for name in names}
    changes: dict[str, Any] = {
        name: None if value == DEFAULT else value
        for name, value in given.items()
        if value is not None
    }
    _check_endpoint(changes.get("endpoint", ""))
    with offline_agent(settings) as agent:
        agent.ledger.replace_peer(replace(_known(agent, arguments.id), **changes))
    print(f"peer {arguments.id} changed: {', '.join(changes) or 'nothing'}")
    return 0


def _check_endpoint(endpoint: str) -> None:
    if endpoint and origin_of(endpoint) is None:
        raise BookkeepingError(f"expected an http:// or https:// URL as endpoint, got {endpoint!r}")


def remove_peer(arguments: Namespace, settings: Settings) -> int:
    with offline_agent(settings) as agent:
        _known(agent, arguments.id)
        agent.ledger.remove_peer(arguments.id)
    print(f"peer {arguments.id} removed. Its balance and receipts are kept.")
    print(f"a running server refuses it after {settings.peer_cache_seconds} seconds at most")
    return 0


def _known(agent: Agent, peer_id: str) -> Peer:
    peer = agent.ledger.peer(peer_id)
    if peer is None:
        raise BookkeepingError(f"there is no peer {peer_id!r}")
    return peer


def _one_moment(agent: Agent) -> AbstractContextManager[object]:
    """All reads inside see the data of one moment, if the engine has snapshots: a server may be
    writing, and receipts are read before events. In the cloud, run an audit in a quiet hour."""
    engine = agent.engine
    return engine.snapshot() if isinstance(engine, SqliteEngine) else nullcontext()


def audit(_arguments: Namespace, settings: Settings) -> int:
    with offline_agent(settings) as agent, _one_moment(agent):
        result = audit_ledger(agent)
    print(
        f"{result.peers} peers, {result.receipts} receipts, {result.events} events,"
        f" {result.posted} posted, {result.pending} pending"
    )
    if result.purses:
        print(f"{result.purses} purses, {result.left} left in them")
    for difference in result.differences:
        print(f"  {difference}")
    print(f"{len(result.differences)} differences")
    return 1 if result.differences else 0
