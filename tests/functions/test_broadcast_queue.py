"""The outbox in the cloud: woken by messages of a queue as soon as something is due, and by a
schedule for whatever no message came."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from farthing.aws.broadcast_wakes import LONGEST_DELAY, SqsBroadcastWakes
from farthing.handlers import runtime
from farthing.nostr.events import Event
from farthing.relay.sequence import number_all
from farthing.store.changes import Arrival
from farthing.store.outbox import DeliveryState
from farthing.store.spaces import NOSTR
from functions.broadcasts import handler as broadcasts
from functions.outbox import handler as outbox
from tests.ilp.test_broadcast import LEASE, BroadcastTown
from tests.relay.world import ALICE, signed

URL = "https://queue.example/broadcasts"
DAY = 24 * 3600


class Queue:
    """SQS, with a clock: a message shows when its delay is over."""

    def __init__(self, now: Any) -> None:
        self._now = now
        self.waiting: list[tuple[float, str]] = []
        self.is_down = False

    def send_message(self, *, QueueUrl: str, MessageBody: str, DelaySeconds: int) -> None:
        assert QueueUrl == URL
        assert 0 <= DelaySeconds <= 900
        if self.is_down:
            raise ClientError({"Error": {"Code": "ServiceUnavailable"}}, "SendMessage")
        self.waiting.append((self._now() + DelaySeconds, MessageBody))

    def take(self) -> dict[str, Any] | None:
        """The next message as Lambda hands it to a function."""
        for each in self.waiting:
            if each[0] <= self._now():
                self.waiting.remove(each)
                return {"Records": [{"body": each[1], "eventSource": "aws:sqs"}]}
        return None


class CloudTown(BroadcastTown):
    """Alice runs in the cloud: her functions are called as Lambda calls them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.queue = Queue(self.clock)
        self.install()

    def install(self, **settings: Any) -> None:
        self.change("alice", **settings)
        wakes = SqsBroadcastWakes(lambda: URL, lambda: self.queue)
        self.wire.agents["alice"] = replace(self.alice, broadcast_wakes=wakes)
        runtime.install(self.alice)

    def publish(self, text: str) -> Event:
        """A note of Alice's, numbered by the sequencer."""
        note = self.note(text)
        number_all(self.alice, {NOSTR: [Arrival(note.id, note.pubkey, note.kind)]})
        return note

    def work(self) -> int:
        """Call the function with every message that shows. How many those were."""
        calls = 0
        while (event := self.queue.take()) is not None:
            broadcasts.handler(event, None)
            calls += 1
            assert calls < 100, "it wakes itself without end"
        return calls

    def states(self, event: Event) -> list[DeliveryState]:
        found = self.alice.outbox.broadcast(event.id)
        return [] if found is None else [each.state for each in found.deliveries]


@pytest.fixture
def town(tmp_path: Path) -> Iterator[CloudTown]:
    town = CloudTown(tmp_path)
    town.follow("alice", "bob", "carol")
    town.route("alice", bob="bob", carol="carol")
    town.install()
    yield town
    runtime.install(None)
    for engine in town.engines:
        engine.close()


def test_what_the_owner_publishes_is_placed_without_waiting_for_the_schedule(
    town: CloudTown,
) -> None:
    town.install(broadcast_all=True)
    town.publish("long before")
    town.work()  # the first look sees nothing
    note = town.publish("new")
    town.work()
    assert town.states(note) == [DeliveryState.STORED]
    assert town.queue.waiting == []
    town.check_books("bob")


@pytest.mark.parametrize(
    ("broadcast_all", "secret"), [(False, None), (True, ALICE)], ids=["by hand", "of others"]
)
def test_nobody_is_woken_for_what_is_not_broadcast(
    town: CloudTown, broadcast_all: bool, secret: bytes | None
) -> None:
    town.install(broadcast_all=broadcast_all)
    note = town.note() if secret is None else signed(secret)
    number_all(town.alice, {NOSTR: [Arrival(note.id, note.pubkey, note.kind)]})
    assert town.queue.waiting == []


def test_a_relay_that_is_down_is_tried_again_when_its_time_has_come(town: CloudTown) -> None:
    town.hubs("bob", "carol")
    town.install()
    town.wire.cut.add("bob")
    note = town.note()
    town.place_only(note)
    assert town.work() == 1
    assert sorted(town.states(note)) == [DeliveryState.DUE, DeliveryState.STORED]
    town.clock.now += 29
    assert town.work() == 0
    town.clock.now += 1
    assert town.work() == 1  # and is down still
    town.wire.cut.clear()
    town.clock.now += 60
    town.work()
    assert town.states(note) == [DeliveryState.STORED, DeliveryState.STORED]
    assert town.queue.waiting == []
    town.check_books("bob", "carol")


def test_a_message_that_comes_twice_sends_one_packet(town: CloudTown) -> None:
    note = town.note()
    town.place_only(note)
    event = town.queue.take()
    assert event is not None
    broadcasts.handler(event, None)
    broadcasts.handler(event, None)
    town.check_books("bob")


def test_a_lost_message_is_made_up_for_by_the_schedule(
    town: CloudTown, caplog: pytest.LogCaptureFixture
) -> None:
    town.queue.is_down = True
    note = town.note()
    with caplog.at_level(logging.WARNING):
        town.place_only(note)
    assert "the outbox could not be woken" in caplog.text
    assert outbox.handler({}, None) == {"new": False, "woken": 1}
    assert town.work() == 0
    town.queue.is_down = False
    assert outbox.handler({}, None) == {"new": False, "woken": 1}
    town.work()
    assert town.states(note) == [DeliveryState.STORED]
    assert outbox.handler({}, None) == {"new": False, "woken": 0}


def test_what_the_sequencer_woke_nobody_for_is_found_by_the_schedule(town: CloudTown) -> None:
    town.install(broadcast_all=True)
    town.publish("long before")
    town.work()
    town.queue.is_down = True
    note = town.publish("nobody hears of it")
    town.queue.is_down = False
    assert outbox.handler({}, None)["new"] is True
    town.work()
    assert town.states(note) == [DeliveryState.STORED]
    assert outbox.handler({}, None)["new"] is False


def test_a_crash_in_the_middle_is_taken_up_when_the_lease_has_ended(
    town: CloudTown, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The function is killed; its message shows again when somebody else might be at it still."""

    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    note = town.note()
    town.place_only(note)
    event = town.queue.take()
    assert event is not None
    with monkeypatch.context() as patched:
        patched.setattr("farthing.store.outbox.Outbox.finish", die)
        with pytest.raises(Killed):
            broadcasts.handler(event, None)
    broadcasts.handler(event, None)
    assert town.states(note) == [DeliveryState.DUE]
    town.clock.now += LEASE
    town.work()
    assert town.states(note) == [DeliveryState.STORED]
    town.check_books("bob")


def test_what_is_due_later_than_a_message_can_wait_is_left_to_the_schedule(
    town: CloudTown,
) -> None:
    town.install(broadcast_retry_seconds=LONGEST_DELAY + 1)
    town.wire.cut.add("bob")
    note = town.note()
    town.place_only(note)
    town.work()
    assert town.queue.waiting == []
    town.wire.cut.clear()
    town.clock.now += LONGEST_DELAY + 1
    outbox.handler({}, None)
    town.work()
    assert town.states(note) == [DeliveryState.STORED]


@pytest.mark.parametrize("body", ["", "old", "A" * 64, '["x"]'])
def test_what_is_no_wake_fails_and_is_kept(town: CloudTown, body: str) -> None:
    with pytest.raises(ValueError, match="expected the id"):
        broadcasts.handler({"Records": [{"body": body}]}, None)
