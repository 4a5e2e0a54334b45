"""`farthing routes rebuild` on a data folder, beside the process that has it open."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

from farthing.nostr.events import Event, public_key_of, sign_event
from farthing.settings import Settings
from farthing.store.credits import CreditLimits
from farthing.store.events import EventStore
from farthing.store.routes import RoutingTable
from farthing.store.spaces import NOSTR
from farthing.store.sqlite import SqliteEngine
from glue_jobs import rebuild_routes
from glue_jobs.rules import Report
from infra.local import cli
from infra.local.commands import rebuild as rebuilding
from infra.local.server.identity import with_identity
from tests.e2e.relay_process import ROOT

SECRETS = {name: bytes([number] * 32) for number, name in enumerate(("bob", "carol", "eve"), 1)}
KEYS = {name: public_key_of(secret) for name, secret in SECRETS.items()}
CREATED = 1_700_000_000


def follows(secret: bytes, *names: str) -> Event:
    tags = [["p", KEYS[name]] for name in names]
    return sign_event(secret, kind=3, content="", created_at=CREATED, tags=tags)


def claims(name: str, fee: int = 0, address: str = "") -> Event:
    tags = [["ilp_address", address or f"g.agent.{name}"], ["fee", str(fee)]]
    return sign_event(SECRETS[name], kind=10032, content="", created_at=CREATED, tags=tags)


class Folder:
    """A data folder that somebody else has open: the events that it holds, and its tables."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.engine = SqliteEngine(path)
        self.settings = with_identity(Settings(data=str(path)))
        self.routes = RoutingTable(self.engine, cache_seconds=0)

    def save(self, *events: Event) -> None:
        for event in events:
            EventStore(self.engine, NOSTR).save(event)

    def follow(self, *names: str) -> None:
        self.save(follows(bytes.fromhex(self.settings.secret_key), *names))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(tmp_path / "data")
    yield made
    made.engine.close()


@pytest.fixture
def network(folder: Folder) -> Folder:
    folder.follow("bob", "carol")
    folder.save(claims("bob", 5), claims("carol"), claims("eve"), follows(SECRETS["bob"], "eve"))
    return folder


def test_the_command_rebuilds_the_table_in_a_process_of_its_own(network: Folder) -> None:
    """With a Java of its own, as an operator calls it."""
    command = [sys.executable, "-m", "infra.local", "routes", "rebuild", "--hops", "3"]
    path = f"{ROOT / 'layers/farthing/python'}:{ROOT}"
    environment = {**os.environ, "FARTHING_DATA": str(network.path), "PYTHONPATH": path}

    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )

    assert done.returncode == 0, done.stderr
    live = network.routes.live()
    assert live is not None and live.count == 3
    route = network.routes.lookup("g.agent.eve.x")
    assert route is not None and (route.fee, route.hops) == (5, 2)
    assert route.path == (KEYS["bob"], KEYS["eve"])
    assert f"generation {live.name} is in force with 3 routes" in done.stdout
    assert "g.agent.eve  fee 5, 2 hops" in done.stdout
    assert "trust: passing trust on" in done.stderr
    limits = CreditLimits(network.engine).all()
    assert set(limits) == {KEYS["bob"], KEYS["carol"]} and min(limits.values()) > 1


@pytest.fixture
def here(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, in the session that is there."""
    monkeypatch.setattr(rebuilding, "spark_session", lambda _: nullcontext(spark))


def rebuild(folder: Folder, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setenv("FARTHING_DATA", str(folder.path))
    return cli.main(["routes", "rebuild", "--quiet", *arguments])


def test_an_empty_table_is_refused_and_says_so(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = SimpleNamespace(toLocalIterator=lambda: iter([]))
    found = Report(refused={"claim without a valid address": 7})
    monkeypatch.setattr(rebuilding, "spark_session", nullcontext)
    monkeypatch.setattr(rebuilding, "_events", lambda *_: None)
    monkeypatch.setattr(rebuild_routes, "rebuild_from_events", lambda *_: (nothing, found))

    assert rebuild(folder, monkeypatch) == 1

    assert folder.routes.live() is None
    told = capsys.readouterr()
    assert "the new table is empty; the old table stays in force" in told.err
    assert "refused: 7" in told.out, "and why there is nothing"


@pytest.mark.usefixtures("here")
def test_a_file_is_verified_before_it_counts(
    folder: Folder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    owner = bytes.fromhex(folder.settings.secret_key)
    forged = {**json.loads(claims("carol").to_json()), "pubkey": KEYS["eve"]}
    lines = [
        follows(owner, "bob", "carol", "eve").to_json(),
        claims("bob").to_json(),
        claims("carol", address="peer.carol").to_json(),
        json.dumps(forged),
        "no JSON",
        sign_event(owner, kind=1, content="x", created_at=CREATED, tags=[]).to_json(),
    ]
    file = tmp_path / "events.jsonl"
    file.write_text("\n".join(lines) + "\n")

    assert rebuild(folder, monkeypatch, "--input", str(file)) == 0

    live = folder.routes.live()
    assert live is not None
    assert [route.prefix for route in folder.routes.routes(live.name)] == ["g.agent.bob"]
    told = capsys.readouterr().out
    assert "2 malformed" in told
    assert "refused: 1 of: claim of an address that is never forwarded to" in told


def test_a_missing_input_is_named(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rebuild(folder, monkeypatch, "--input", "/nowhere/at/all") == 1
    assert "there is no /nowhere" in capsys.readouterr().err


def test_without_spark_it_says_how_to_get_it(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("infra.local.commands.spark.find_spec", lambda _: None)

    assert rebuild(folder, monkeypatch) == 1
    assert "make spark" in capsys.readouterr().err
