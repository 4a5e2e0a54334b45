"""The commands that speak Aether, beside a running relay."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.aether.known import KEYS
from tests.e2e.paying import command, command_environment, free_port, information, table_of
from tests.e2e.relay_process import ROOT, RelayProcess


@pytest.fixture
def relay(start_relay: Callable[..., RelayProcess]) -> RelayProcess:
    return start_relay(secret_key=KEYS["owner_nostr_secret"], port=free_port(), price_per_byte=10)


def exported(relay: RelayProcess, *arguments: str) -> list[dict[str, object]]:
    done = command(relay, "export", "--quiet", *arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_aether_key_shows_the_owners_public_keys(relay: RelayProcess) -> None:
    shown = command(relay, "aether", "key").stdout
    assert KEYS["owner_aether_pubkey"] in shown
    assert KEYS["relay_noise_public"] in shown


def test_posts_are_free_paid_or_by_capability(relay: RelayProcess) -> None:
    own = command(relay, "post", "--aether", "--owner", "of the owner", "--tag", "t=x,y")
    assert own.returncode == 0, own.stdout + own.stderr
    paid = command(relay, "post", "--aether", "of a payer")
    assert paid.returncode == 0, paid.stdout + paid.stderr
    assert "paid" in paid.stdout
    author = table_of(paid.stdout)["author"]
    token = command(relay, "capability", "issue", author, "--max-uses", "1").stdout
    for code in (0, 1):
        third = command(relay, "post", "--aether", f"granted {code}", "--capability", token)
        assert third.returncode == code, third.stdout + third.stderr
    dear = command(relay, "post", "--aether", "dear", "--max-price", "1")
    assert dear.returncode == 1
    contents = [event["content"] for event in exported(relay, "--aether")]
    assert contents == ["granted 0", "of a payer", "of the owner"]
    assert command(relay, "audit").returncode == 0


def test_events_are_exported_and_imported_by_their_format(
    relay: RelayProcess, start_relay: Callable[..., RelayProcess], tmp_path: Path
) -> None:
    for number in range(3):
        command(relay, "post", "--aether", "--owner", f"aether {number}")
    command(relay, "post", "--owner", "nostr")
    assert all("event_id" not in event for event in exported(relay))
    aether = exported(relay, "--aether", "--filter", '{"kinds": [1], "limit": 2}')
    assert [event["content"] for event in aether] == ["aether 2", "aether 1"]
    file = tmp_path / "all.jsonl"
    assert command(relay, "export", "--aether", "--quiet", "-o", str(file)).returncode == 0
    again = command(relay, "export", "--aether", "--quiet", "-o", str(file))
    assert "0 exported" in again.stderr
    lines = file.read_text().splitlines()
    assert len(lines) == 3
    nostr = [json.dumps(event) for event in exported(relay)]
    file.write_text("\n".join([*lines, *nostr, '{"event_id": "x"}']) + "\n")
    other = start_relay("other", price_per_byte=10)
    done = command(other, "import", "--quiet", str(file))
    assert done.returncode == 0, done.stderr
    assert len(exported(other, "--aether")) == 3
    assert [event["content"] for event in exported(other, "--filter", '{"kinds":[1]}')] == ["nostr"]


def test_watch_shows_events_as_they_come(relay: RelayProcess) -> None:
    watching = subprocess.Popen(
        [sys.executable, "-m", "infra.local", "watch", "--aether", "--json"],
        cwd=ROOT, env=command_environment(relay), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert watching.stdout is not None
        command(relay, "post", "--aether", "--owner", "seen")
        event = json.loads(watching.stdout.readline())
        assert event["content"] == "seen"
        assert event["pubkey"] == information(relay)["aether"]["pubkey"]
    finally:
        watching.kill()
        watching.wait()
        assert watching.stdout is not None
        watching.stdout.close()
