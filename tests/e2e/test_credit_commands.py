"""What an operator allows a peer to owe, by the commands that say so."""

from collections.abc import Callable
from pathlib import Path

import pytest

from farthing.store.ledger import Ledger, Peer
from farthing.store.sqlite import SqliteEngine
from infra.local import cli
from infra.local.server.peers import LOCAL_PEER, ensure_local_peer
from tests.relay.world import OWNER

Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setenv("FARTHING_DATA", str(tmp_path))
    monkeypatch.setenv("FARTHING_SECRET_KEY", OWNER.hex())

    def run(*arguments: str) -> str:
        assert cli.main(list(arguments)) == 0
        return capsys.readouterr().out

    return run


def record(folder: Path, peer_id: str) -> Peer | None:
    engine = SqliteEngine(folder)
    try:
        return Ledger(engine).peer(peer_id)
    finally:
        engine.close()


def test_a_stranger_gets_a_dollar_and_is_told_so(run: Run, tmp_path: Path) -> None:
    said = run("peers", "add", "ann")
    assert "may owe us 1000000000 USD/1e9 ($1)" in said
    peer = record(tmp_path, "ann")
    assert peer is not None
    assert peer.max_balance is None


def test_a_limit_of_zero_is_not_the_default(run: Run, tmp_path: Path) -> None:
    assert "may owe us 0 USD/1e9" in run("peers", "add", "ann", "--max-balance", "0")
    run("peers", "add", "bob")
    run("peers", "set", "bob", "--max-balance", "0", "--max-packet", "0")
    for peer_id in ("ann", "bob"):
        peer = record(tmp_path, peer_id)
        assert peer is not None
        assert peer.max_balance == 0
        assert "max balance   0" in run("peers", "show", peer_id)
    assert "max packet    0" in run("peers", "show", "bob")


def test_a_limit_can_be_left_to_the_settings_again(run: Run, tmp_path: Path) -> None:
    run("peers", "add", "ann", "--max-balance", "5")
    run("peers", "set", "ann", "--max-balance", "default")
    peer = record(tmp_path, "ann")
    assert peer is not None
    assert peer.max_balance is None


def test_our_own_clients_have_room(run: Run, tmp_path: Path) -> None:
    settings = cli_settings(tmp_path)
    engine = SqliteEngine(tmp_path)
    ledger = Ledger(engine)
    ensure_local_peer(ledger, settings)
    local = ledger.peer(LOCAL_PEER)
    assert local is not None
    assert local.max_balance == settings.local_max_balance == 10**15
    engine.close()


def cli_settings(folder: Path):  # type: ignore[no-untyped-def]
    from farthing.settings import Settings

    return Settings(data=str(folder), secret_key=OWNER.hex())
