"""Peers on one machine: records for `farthing peers`, and the peer `local` for our own clients."""

from dataclasses import replace
from pathlib import Path

from farthing.ilp.tokens import is_strong, new_token
from farthing.settings import Settings
from farthing.store.ledger import Ledger, Peer, PeerExists, hash_token
from infra.local.server.folder import CannotStart
from infra.local.server.identity import kept_secret

LOCAL_PEER = "local"
_TOKEN_FILE = "peer-token"  # noqa: S105


def ensure_local_peer(ledger: Ledger, settings: Settings) -> None:
    """Make sure that the peer `local` exists, with the token of the settings or the data folder."""
    token = settings.peer_token or local_token(Path(settings.data))
    if not is_strong(token):
        raise CannotStart("expected at least 32 random bytes as the token of the peer `local`")
    known = ledger.peer(LOCAL_PEER)
    if known is not None and known.max_balance is None:
        # The record is from a version in which a peer without a limit of its own had no limit.
        ledger.replace_peer(known := replace(known, max_balance=settings.local_max_balance))
    if known is not None and known.token_hash == hash_token(token):
        return
    if known is not None:
        ledger.remove_peer(LOCAL_PEER)
    try:
        limit = settings.local_max_balance
        ledger.add_peer(new_peer(LOCAL_PEER, token, settings, max_balance=limit))
    except PeerExists:  # another peer has this token: keep that peer as it is
        return


def new_peer(peer_id: str, token: str, settings: Settings, **more: object) -> Peer:
    fields: dict[str, object] = {
        "asset_code": settings.asset_code,
        "asset_scale": settings.asset_scale,
        **more,
    }
    return Peer(id=peer_id, token_hash=hash_token(token), **fields)  # type: ignore[arg-type]


def local_token(data: Path) -> str:
    """The token in the data folder, created on the first run."""
    return kept_secret(data / _TOKEN_FILE, new_token)
