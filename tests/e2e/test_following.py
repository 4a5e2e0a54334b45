"""Follow = subscribe: what followed keys write is read at their relays, kept, and passed on."""

from collections.abc import Callable

from tests.e2e.authors import Author
from tests.e2e.client import RawClient
from tests.e2e.paying import command
from tests.e2e.relay_process import RelayProcess

Connect = Callable[..., RawClient]
Start = Callable[..., RelayProcess]

CACHE = {"follow_content": "cache", "upkeep_seconds": 0}


def owner_of(relay: RelayProcess) -> Author:
    return Author((relay.data / "secret-key").read_text().strip())


def run(relay: RelayProcess, *arguments: str) -> str:
    done = command(relay, *arguments, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def follow(relay: RelayProcess, other: RelayProcess) -> None:
    run(relay, "follow", other.pubkey, "--relay", other.url)


def test_carol_sees_bobs_post_at_alices_relay_live(start_relay: Start, connect: Connect) -> None:
    alice, bob = start_relay("alice", **CACHE), start_relay("bob")
    writer, owner = connect(bob), owner_of(bob)
    before = owner.event("before Alice followed")
    writer.store(before)
    carol = connect(alice)
    carol.request("bob", {"authors": [bob.pubkey], "kinds": [1]})

    follow(alice, bob)

    assert carol.wait_for("EVENT", "bob")[2]["id"] == before["id"]
    live = owner.event("and after")
    writer.store(live)
    assert carol.wait_for("EVENT", "bob")[2]["id"] == live["id"]
    assert run(alice, "audit").splitlines()[-1] == "0 differences"
