"""NIP-77 with a real client: rust-nostr's sync against the running server, both sides end equal."""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Any

import pytest
from nostr_sdk import (
    ClientBuilder,
    Event,
    Filter,
    PublicKey,
    RelayUrl,
    SyncDirection,
    SyncOptions,
    uniffi_set_event_loop,
)

from tests.e2e.authors import Author
from tests.e2e.client import Background, RawClient
from tests.e2e.relay_process import RelayProcess
from tests.e2e.sdk_database import DictDatabase
from tests.e2e.stores import exported_ids, import_events

SIZES = (0, 1, 31, 32, 33)
MANY = 10_000
PATIENCE = timedelta(seconds=10)

EventDict = dict[str, Any]


def ids(events: list[EventDict]) -> set[str]:
    return {event["id"] for event in events}


@dataclass
class Synced:
    """What a sync left behind on either side, and what it says it did."""

    client: set[str]
    sent: int
    received: int
    failed: dict[Any, str] = field(default_factory=dict)


async def _sync(
    url: str, author: Author, events: list[EventDict], direction: SyncDirection
) -> Synced:
    uniffi_set_event_loop(asyncio.get_running_loop())
    database = DictDatabase(Event.from_json(json.dumps(event)) for event in events)
    client = ClientBuilder().database(database).build()
    relay = RelayUrl.parse(url)
    await client.add_relay(relay)
    await client.connect(PATIENCE)
    try:
        filter = Filter().author(PublicKey.parse(author.pubkey))
        output = await client.sync(filter, None, SyncOptions().direction(direction))
    finally:
        await client.shutdown()
    report = output.report
    assert not any(report.send_failures.values()), report.send_failures
    return Synced(set(database.events), len(report.sent), len(report.received), output.failed)


@pytest.fixture
def sync(background: Background, relay: RelayProcess) -> Callable[..., Synced]:
    """rust-nostr's client with these events syncs what an author wrote."""

    def run(
        author: Author, events: list[EventDict], direction: SyncDirection = SyncDirection.BOTH
    ) -> Synced:
        synced = background.run(_sync(relay.url, author, events, direction), seconds=90)
        assert not synced.failed
        return synced

    return run


@cache
def _now() -> int:
    return int(time.time())


def notes(author: Author, number: int, *, same_second: bool = False) -> list[EventDict]:
    return [
        author.event(created_at=_now() - (0 if same_second else each % 1000))
        for each in range(number)
    ]


@pytest.mark.parametrize("same_second", [False, True], ids=["many seconds", "one second"])
@pytest.mark.parametrize("size", SIZES)
class TestSets:
    """Each size as what only the relay has, only the client has, or both share."""

    def test_a_client_fetches_the_events_that_it_lacks(
        self, client: RawClient, author: Author, sync: Any, size: int, same_second: bool
    ) -> None:
        theirs = notes(author, size, same_second=same_second)
        client.store(*theirs)

        synced = sync(author, [], SyncDirection.DOWN)

        assert synced.client == ids(theirs)
        assert (synced.sent, synced.received) == (0, size)

    def test_a_client_sends_the_events_that_the_relay_lacks(
        self, client: RawClient, author: Author, sync: Any, size: int, same_second: bool
    ) -> None:
        mine = notes(author, size, same_second=same_second)

        synced = sync(author, mine, SyncDirection.UP)

        assert set(client.ids({"authors": [author.pubkey]})) == ids(mine)
        assert (synced.sent, synced.received) == (size, 0)

    def test_sets_without_a_common_event_become_equal(
        self, client: RawClient, author: Author, sync: Any, size: int, same_second: bool
    ) -> None:
        theirs = notes(author, size, same_second=same_second)
        mine = notes(author, 40, same_second=same_second)
        client.store(*theirs)

        synced = sync(author, mine)

        assert synced.client == ids(theirs + mine)
        assert set(client.ids({"authors": [author.pubkey]})) == ids(theirs + mine)

    def test_equal_sets_exchange_nothing(
        self, client: RawClient, author: Author, sync: Any, size: int, same_second: bool
    ) -> None:
        shared = notes(author, size, same_second=same_second)
        client.store(*shared)

        synced = sync(author, shared)

        assert (synced.sent, synced.received) == (0, 0)
        assert synced.client == ids(shared)

    def test_only_the_difference_of_nested_sets_is_exchanged(
        self, client: RawClient, author: Author, sync: Any, size: int, same_second: bool
    ) -> None:
        shared = notes(author, size, same_second=same_second)
        more = notes(author, 50, same_second=same_second)
        client.store(*shared, *more)

        synced = sync(author, shared)

        assert synced.client == ids(shared + more)
        assert (synced.sent, synced.received) == (0, len(more))
        beyond = notes(author, 20, same_second=same_second)
        synced = sync(author, shared + more + beyond)
        assert (synced.sent, synced.received) == (len(beyond), 0)
        assert set(client.ids({"authors": [author.pubkey]})) == ids(shared + more + beyond)


class TestTenThousand:
    """Half a percent on either side is missing on the other; a third are of one second."""

    @pytest.fixture
    def big(self, tmp_path_factory: pytest.TempPathFactory, author: Author) -> Any:
        events = [author.event(created_at=_now() - (each if each % 3 else 5000))
                  for each in range(MANY)]  # fmt: skip
        data = tmp_path_factory.mktemp("big") / "data"
        import_events(data, events[:-50])
        relay = RelayProcess(data, price_per_byte=0, requests_per_second=0).start()
        yield relay, events
        assert relay.stop() == 0
        relay.check_log()

    def test_large_sets_become_equal_both_ways_and_down(
        self, background: Background, big: Any, author: Author
    ) -> None:
        relay, events = big

        both = background.run(
            _sync(relay.url, author, events[50:], SyncDirection.BOTH), seconds=120
        )
        assert not both.failed
        assert (both.sent, both.received) == (50, 50)
        assert both.client == ids(events)
        assert exported_ids(relay.data, {"authors": [author.pubkey]}) == ids(events)

        down = background.run(_sync(relay.url, author, [], SyncDirection.DOWN), seconds=120)
        assert not down.failed
        assert down.client == ids(events)

    def test_many_events_are_sent_up_without_a_failure(
        self, background: Background, start_relay: Callable[..., RelayProcess], author: Author
    ) -> None:
        events = [author.event(created_at=_now() - each // 7) for each in range(MANY)]
        relay = start_relay(price_per_byte=0, requests_per_second=0)

        up = background.run(_sync(relay.url, author, events, SyncDirection.UP), seconds=120)

        assert not up.failed
        assert (up.sent, up.received) == (MANY, 0)
        assert exported_ids(relay.data, {"authors": [author.pubkey]}) == ids(events)
