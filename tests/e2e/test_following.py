"""Follow = subscribe: what followed keys write is read at their relays, kept, and passed on."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.e2e.authors import Author
from tests.e2e.client import RawClient
from tests.e2e.paying import command
from tests.e2e.relay_process import ROOT, RelayProcess, environment

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
    # The borrowed note has a number like any other.
    carol.send("CHANGES", "numbers", {"authors": [bob.pubkey], "kinds": [1]})
    assert carol.wait_for("CHANGES", "numbers", "EVENT")[4]["id"] == before["id"]
    assert run(alice, "audit").splitlines()[-1] == "0 differences"
    relays = run(alice, "relays").splitlines()
    assert relays[-1].split()[0] == bob.url
    assert relays[-1].endswith("changes")


def test_deletions_follow_and_who_is_unfollowed_is_read_no_more(
    start_relay: Start, connect: Connect
) -> None:
    alice, bob = start_relay("alice", **CACHE), start_relay("bob")
    writer, owner, reader = connect(bob), owner_of(bob), connect(alice)
    note = owner.event("to be deleted")
    writer.store(note)
    reader.request("bob", {"authors": [bob.pubkey], "kinds": [1, 5]})
    follow(alice, bob)
    assert reader.wait_for("EVENT", "bob")[2]["id"] == note["id"]
    writer.store(owner.event("", kind=5, tags=[["e", note["id"]]]))
    assert reader.wait_for("EVENT", "bob")[2]["kind"] == 5
    until(lambda: reader.ids({"ids": [note["id"]]}) == [])

    with_a_connection = threads_of(alice)
    run(alice, "unfollow", bob.pubkey)
    until(lambda: threads_of(alice) < with_a_connection)
    assert run(alice, "relays").splitlines()[-1].endswith("not read any more")


def test_the_feed_shows_names_and_harmless_text(start_relay: Start, connect: Connect) -> None:
    alice, bob = start_relay("alice", upkeep_seconds=0), start_relay("bob")
    owner, writer = owner_of(bob), connect(bob)
    writer.store(
        owner.event('{"name": "Bob \\u001b[31mRed"}', kind=0, created_at=1_700_000_000),
        owner.event("first", created_at=1_700_000_001),
        owner.event("second\x1b]0;pwned\x07", created_at=1_700_000_002),
    )
    follow(alice, bob)
    lines = run(alice, "feed", "--once").splitlines()
    assert lines == [
        "2023-11-14 22:13:21  Bob \ufffd[31mRed: first",
        "2023-11-14 22:13:22  Bob \ufffd[31mRed: second\ufffd]0;pwned\ufffd",
    ]


def test_a_running_feed_shows_who_is_followed_meanwhile(
    start_relay: Start, connect: Connect
) -> None:
    alice = start_relay("alice", upkeep_seconds=0)
    bob, carol = start_relay("bob"), start_relay("carol")
    for name, relay in (("Bob", bob), ("Carol", carol)):
        owner = owner_of(relay)
        connect(relay).store(
            owner.event(json.dumps({"name": name}), kind=0), owner.event(f"from {name}")
        )
    follow(alice, bob)
    feed = subprocess.Popen(
        [sys.executable, "-m", "infra.local", "feed"], cwd=ROOT, text=True,
        env=environment(alice.data, alice.settings), stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert feed.stdout is not None
        assert feed.stdout.readline().endswith("  Bob: from Bob\n")
        follow(alice, carol)
        assert feed.stdout.readline().endswith("  Carol: from Carol\n")
        run(alice, "unfollow", bob.pubkey)
        live = owner_of(carol).event("and live")
        connect(carol).store(live)
        assert feed.stdout.readline().endswith("  Carol: and live\n")
    finally:
        feed.terminate()
        feed.communicate()


def test_to_follow_again_keeps_the_relay_and_an_unknown_relay_is_told(start_relay: Start) -> None:
    alice, author = start_relay("alice", upkeep_seconds=0), Author()
    assert "no relay that is known yet: add --relay" in run(alice, "follow", author.pubkey)
    assert "read nowhere: 1" in run(alice, "relays")
    relay = "wss://relay.example"
    assert relay in run(alice, "follow", author.pubkey, "--relay", relay)
    assert relay in run(alice, "follow", author.pubkey)
    assert "read nowhere" not in run(alice, "relays")


def test_no_feed_is_shown_where_content_is_off(start_relay: Start) -> None:
    alice = start_relay("alice", follow_content="off", upkeep_seconds=0)
    run(alice, "follow", Author().pubkey, "--relay", "wss://relay.example")
    done = command(alice, "feed", "--once", timeout=60)
    assert done.returncode == 1
    assert "FARTHING_FOLLOW_CONTENT" in done.stderr


def until(look: Callable[[], bool]) -> None:
    ends = time.monotonic() + 30
    while not look():
        assert time.monotonic() < ends
        time.sleep(0.1)


def threads_of(relay: RelayProcess) -> int:
    return len(list(Path(f"/proc/{relay.process.pid}/task").iterdir()))
