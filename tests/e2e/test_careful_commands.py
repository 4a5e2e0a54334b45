"""Commands that meet strangers: what they keep to themselves, refuse, and say."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import farthing as library
from farthing.ilp.packet import Reject
from farthing.store.ledger import Ledger
from farthing.store.sqlite import SqliteEngine
from tests.e2e.authors import Author
from tests.e2e.client import RawClient
from tests.e2e.paying import PER_BYTE, command, free_port, pay, payment_for, table_of
from tests.e2e.relay_process import ROOT, RelayProcess, environment
from tests.e2e.stores import exported_ids, farthing


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayProcess]:
    data = tmp_path_factory.mktemp("careful") / "data"
    relay = RelayProcess(data, port=free_port(), price_per_byte=PER_BYTE).start()
    yield relay
    assert relay.stop() == 0
    relay.check_log()


class Stranger:
    """A relay that asks for money at an endpoint of its own, and notes what it is shown."""

    def __init__(self, per_byte: int = 10, name: str = "stranger") -> None:
        self.requests: list[dict[str, str]] = []
        stranger = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                stranger.requests.append(dict(self.headers))
                self._answer(stranger.document(per_byte, name))

            def do_POST(self) -> None:
                stranger.requests.append(dict(self.headers))
                self._answer({})

            def _answer(self, document: dict[str, Any]) -> None:
                body = json.dumps(document).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def document(self, per_byte: int, name: str) -> dict[str, Any]:
        return {
            "name": name,
            "pubkey": Author().pubkey,
            "ilp": {
                "address": "g.agent.stranger",
                "endpoint": f"http://127.0.0.1:{self.port}/ilp",
                "asset_code": "USD",
                "asset_scale": 9,
            },
            "fees": {"publication_per_byte": {"amount": per_byte, "unit": "USD/1e9"}},
        }

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    made = Stranger()
    yield made
    made.close()


def test_our_token_is_not_shown_to_a_stranger(relay: RelayProcess, stranger: Stranger) -> None:
    done = command(relay, "post", "hello", "--relay", stranger.url)

    assert done.returncode == 1
    assert "--token" in done.stderr and "--connector" in done.stderr
    assert not [each for each in stranger.requests if "Authorization" in each]


def test_a_token_that_is_given_is_shown(relay: RelayProcess, stranger: Stranger) -> None:
    command(relay, "post", "hello", "--relay", stranger.url, "--token", "given")

    assert [each["Authorization"] for each in stranger.requests if "Authorization" in each] == [
        "Bearer given"
    ]


def test_a_price_that_nobody_expects_is_not_paid(relay: RelayProcess) -> None:
    greedy = Stranger(per_byte=10**8)
    try:
        done = command(relay, "post", "hello", "--relay", greedy.url, "--token", "t")
        assert done.returncode == 1
        assert "--max-price" in done.stderr and "$" in done.stderr
        assert not [each for each in greedy.requests if "Authorization" in each]
    finally:
        greedy.close()


def test_the_users_own_bound_holds(relay: RelayProcess) -> None:
    done = command(relay, "post", "hello", "--max-price", "5")

    assert done.returncode == 1
    assert "more than the 5 allowed" in done.stderr


def test_the_owners_event_costs_nothing(relay: RelayProcess, client: RawClient) -> None:
    before = balance(relay)

    done = command(relay, "post", "from the owner", "--owner")

    assert done.returncode == 0, done.stderr
    said = table_of(done.stdout)
    assert said["price"].startswith("0")
    assert [event["pubkey"] for event in client.ask({"ids": [said["event"]]})] == [relay.pubkey]
    assert balance(relay) == before


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_no_packet_leaves_for_our_own_network(
    tmp_path: Path, stranger: Stranger, host: str
) -> None:
    """Not for an address, nor for a name that leads there."""
    relay = RelayProcess(tmp_path / "data", port=free_port(), allow_private_hosts=0).start()
    try:
        endpoint = f"http://{host}:{stranger.port}/ilp"
        added = command(
            relay, "peers", "add", "evil", "--address", "g.evil", "--endpoint", endpoint,
            "--outgoing-token", "x" * 20 + "0123456789" * 3,
        )  # fmt: skip
        assert added.returncode == 0, added.stderr
        author = Author()
        payment = payment_for(relay, author, author.event("x"), destination="g.evil.x")

        reply = pay(relay, payment)

        assert isinstance(reply, Reject)
        assert reply.code == "T01"
        assert [each for each in stranger.requests if "Authorization" in each] == []
    finally:
        relay.stop()


def balance(relay: RelayProcess) -> int:
    engine = SqliteEngine(relay.data)
    try:
        return Ledger(engine).balance("local").posted
    finally:
        engine.close()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["post", "x", "--relay", "foo"], "expected a ws"),
        (["post", "x", "--kind", "many"], "expected a kind"),
        (["post", "x", "--amount", "much"], "expected a whole number"),
        (["post", "x", "--relay", "ws://127.0.0.1:1"], "refused"),
        (["follow", "somebody"], "expected a public key"),
        (["watch", "--filter", "x"], "expected a filter"),
        (["watch", "--relay", "ws://127.0.0.1:1"], "the connection was refused"),
        (["watch", "--changes", "--relay", "ws://nowhere.invalid"], "the host has no address"),
        (["sync", "ws://127.0.0.1:1"], "the connection was refused"),
        (["sync", "foo"], "expected a ws"),
        (["peers", "add", "x", "--address", "foo"], "expected an ILP address"),
        (["peers", "add", "x", "--address", "peer.x"], "expected an ILP address"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_plain_line(
    relay: RelayProcess, arguments: list[str], reason: str
) -> None:
    done = command(relay, *arguments)

    assert done.returncode in (1, 2)
    last = done.stderr.strip().splitlines()[-1]
    assert reason in last
    for word in ("Traceback", "urllib3", "NewConnectionError", "invalid literal", "ssl:default"):
        assert word not in done.stderr


def test_version_prints_the_version_of_the_library() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "infra.local", "--version"],
        cwd=ROOT, env=environment(Path("unused"), {}), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == f"farthing {library.__version__}"


def test_a_sync_that_fails_prints_its_reason_alone(tmp_path: Path) -> None:
    done = farthing(tmp_path / "data", "sync", "ws://127.0.0.1:1", "--quiet")

    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1


class TestImport:
    def run(
        self, tmp_path: Path, *events: dict[str, Any], **settings: object
    ) -> "subprocess.CompletedProcess[str]":
        file = tmp_path / "events.jsonl"
        file.write_text("".join(json.dumps(event) + "\n" for event in events))
        return farthing(tmp_path / "data", "import", str(file), "--quiet", **settings)

    def test_what_the_policies_refuse_is_refused(self, tmp_path: Path) -> None:
        author, blocked = Author(), Author()
        good = author.event("good")

        done = self.run(
            tmp_path,
            good,
            blocked.event("blocked"),
            author.event("protected", tags=[["-"]]),
            author.event("tomorrow", created_at=4 * 10**9),
            blocked_pubkeys=blocked.pubkey,
        )

        assert done.returncode == 0
        assert "1 stored" in done.stdout and "3 invalid" in done.stdout
        assert exported_ids(tmp_path / "data", {}) == {good["id"]}

    def test_garbage_is_a_failure(self, tmp_path: Path) -> None:
        file = tmp_path / "garbage"
        file.write_text("this is\nno event\n")

        done = farthing(tmp_path / "data", "import", str(file), "--quiet")

        assert done.returncode == 1
        assert "2 not JSON" in done.stdout

    def test_a_dash_imports_from_stdin(self, tmp_path: Path) -> None:
        event = Author().event("by stdin")
        done = subprocess.run(
            [sys.executable, "-m", "infra.local", "import", "-", "--quiet"],
            cwd=ROOT, env=environment(tmp_path / "data", {}), input=json.dumps(event) + "\n",
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert exported_ids(tmp_path / "data", {}) == {event["id"]}

    def test_a_store_that_fails_fails_the_import(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from farthing.settings import Settings
        from farthing.store.events import EventStore
        from farthing.store.table import StoreError
        from infra.local.commands.transfer import NotImported, import_file

        file = tmp_path / "events.jsonl"
        file.write_text(json.dumps(Author().event("x")) + "\n")
        settings = Settings(data=str(tmp_path / "data"))

        def fail(*_: object, **__: object) -> None:
            raise StoreError("the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(EventStore, "save", fail)
            with pytest.raises(NotImported, match="the disk is full"):
                import_file(settings, file, progress=False)

        assert import_file(settings, file, progress=False).stored == 1  # nothing was skipped


def test_a_command_whose_output_nobody_reads_ends_quietly(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "infra.local", "relays"], cwd=ROOT,
        env=environment(tmp_path / "data", {}), stdout=writing, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")
