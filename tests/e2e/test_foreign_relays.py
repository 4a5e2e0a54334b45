"""Following and broadcasting at relays that nobody here wrote."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.bench import nostr_relay
from tests.e2e.authors import Author
from tests.e2e.client import Background, RawClient
from tests.e2e.relay_process import RelayProcess
from tests.e2e.test_following import CACHE, owner_of, run

Start = Callable[..., RelayProcess]


@contextmanager
def sdk_relay(background: Background) -> Iterator[str]:
    """The relay that is built into nostr-sdk."""
    sdk = pytest.importorskip("nostr_sdk", reason="nostr-sdk is not installed")

    async def start() -> object:
        sdk.uniffi_set_event_loop(asyncio.get_running_loop())
        unlimited = sdk.RateLimit(max_reqs=100_000, notes_per_minute=1_000_000)
        relay = sdk.LocalRelayBuilder().rate_limit(unlimited).build()
        await relay.run()
        return relay, str(await relay.url())

    relay, url = background.run(start())  # type: ignore[misc]
    try:
        yield url
    finally:
        relay.shutdown()


@contextmanager
def python_relay(_background: Background) -> Iterator[str]:
    """`nostr-relay` from PyPI, installed in an environment of its own the first time."""
    try:
        with nostr_relay.running() as rival:
            yield f"ws://127.0.0.1:{rival.port}"
    except nostr_relay.CannotRun as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    "relay_of", [sdk_relay, pytest.param(python_relay, marks=pytest.mark.soak)]
)
def test_a_foreign_relay_is_followed_and_broadcast_to(
    relay_of: Callable[[Background], object], start_relay: Start, background: Background
) -> None:
    with relay_of(background) as url:  # type: ignore[attr-defined]
        author, there = Author(), RawClient(background, url)
        # Older than what a new subscription asks for, so they come by catching up.
        past = int(time.time()) - 3600
        there.store(*(author.event(f"note {at}", created_at=past + at // 7) for at in range(30)))
        alice = start_relay("alice", **CACHE, broadcast_hubs=url)
        here = RawClient(background, alice.url)
        here.request("followed", {"authors": [author.pubkey]})

        run(alice, "follow", author.pubkey, "--relay", url)

        came = {here.wait_for("EVENT", "followed")[2]["content"] for _ in range(30)}
        assert came == {f"note {number}" for number in range(30)}
        live = author.event("and live")
        there.store(live)
        assert here.wait_for("EVENT", "followed")[2]["id"] == live["id"]
        assert "live" in run(alice, "feed", "--once", "--limit", "3")

        note = owner_of(alice).event("from a farthing")
        here.store(note)
        assert "1 of 1 stored" in run(alice, "broadcast", note["id"])
        assert there.ids({"ids": [note["id"]]}) == [note["id"]]
        there.close()
        here.close()
