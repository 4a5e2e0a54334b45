"""The relay as a real client sees it: rust-nostr, through its Python bindings."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from nostr_sdk import (
    Client,
    ClientBuilder,
    Event,
    EventBuilder,
    Filter,
    Keys,
    Kind,
    RelayUrl,
    ReqTarget,
    SignerAuthenticator,
    Tag,
    Timestamp,
    UnwrappedGift,
    nip04_encrypt,
    nip17_make_private_msg,
    uniffi_set_event_loop,
)

from tests.e2e.client import Background
from tests.e2e.relay_process import RelayProcess

PATIENCE = timedelta(seconds=10)


class Person:
    """A key and the client that its holder uses."""

    def __init__(self, keys: Keys, client: Client, url: str) -> None:
        self.keys = keys
        self.client = client
        self._url = RelayUrl.parse(url)
        # One moment for all events: a second that passes between two of them changes no order.
        self._came = Timestamp.now().as_secs()

    def event(self, content: str, kind: int = 1, tags: tuple[Tag, ...] = (), ago: int = 0) -> Event:
        at = Timestamp.from_secs(self._came - ago)
        builder = EventBuilder(Kind(kind), content).tags(list(tags)).custom_created_at(at)
        return builder.finalize(self.keys)

    async def publish(self, event: Event) -> None:
        output = await self.client.send_event(event)
        assert not output.failed
        assert len(output.success) == 1

    async def refused(self, event: Event) -> str:
        output = await self.client.send_event(event)
        return next(iter(output.failed.values()))

    async def fetch(self, *filters: Filter) -> list[str]:
        """What the events say, in the order in which the client has them: newest first."""
        events = await self.client.fetch_events(ReqTarget.auto(list(filters)), PATIENCE)
        assert all(event.verify() for event in events)
        return [event.content() for event in events]

    async def fetch_mine(self, kind: int) -> list[str]:
        return await self.fetch(Filter().author(self.keys.public_key()).kind(Kind(kind)))

    async def count(self, filter: Filter) -> int:
        relay = await self.client.relay(self._url)
        assert relay is not None
        return await relay.count_events(filter, PATIENCE)


@asynccontextmanager
async def person(url: str, authenticates: bool = True) -> AsyncIterator[Person]:
    uniffi_set_event_loop(asyncio.get_running_loop())
    keys = Keys.generate()
    builder = ClientBuilder()
    if authenticates:
        builder = builder.authenticator(SignerAuthenticator(keys))
    client = builder.build()
    await client.add_relay(RelayUrl.parse(url))
    await client.connect(PATIENCE)
    try:
        yield Person(keys, client, url)
    finally:
        await client.shutdown()


@pytest.fixture
def scenario(background: Background, relay: RelayProcess):
    """Run what people do on the module's relay."""

    def run(story) -> None:
        background.run(story(relay.url), seconds=30)

    return run


def test_published_events_are_fetched_newest_first(scenario):
    async def story(url: str) -> None:
        async with person(url) as alice, person(url) as bob:
            await alice.publish(alice.event("first", ago=2))
            await alice.publish(alice.event("second", ago=1))
            mine = Filter().author(alice.keys.public_key())
            assert await bob.fetch(mine) == ["second", "first"]
            assert await bob.fetch(mine.limit(1)) == ["second"]
            assert await bob.count(mine) == 2

    scenario(story)


def test_events_are_found_by_their_tags(scenario):
    async def story(url: str) -> None:
        async with person(url) as alice:
            topic = alice.keys.public_key().to_hex()[:20]
            note = alice.event("on topic", tags=(Tag.hashtag(topic),))
            await alice.publish(note)
            await alice.publish(alice.event("reply", tags=(Tag.event(note.id()),)))
            await alice.publish(alice.event("hey", tags=(Tag.public_key(alice.keys.public_key()),)))
            assert await alice.fetch(Filter().hashtag(topic)) == ["on topic"]
            assert await alice.fetch(Filter().event(note.id())) == ["reply"]
            assert await alice.fetch(Filter().pubkey(alice.keys.public_key())) == ["hey"]

    scenario(story)


async def next_event(stream, subscription: str) -> Event:
    while True:
        notification = await stream.next()
        if notification.is_new_event() and notification.subscription_id == subscription:
            return notification.event


def test_a_live_subscription_gets_each_new_event(scenario):
    async def story(url: str) -> None:
        async with person(url) as alice, person(url) as bob:
            stream = bob.client.notifications()
            wanted = Filter().author(alice.keys.public_key()).limit(0)
            output = await bob.client.subscribe(ReqTarget.auto([wanted]))
            # Its EOSE says that the subscription stands.
            while not (
                (got := await stream.next()).is_message()
                and got.message.as_enum().is_end_of_stored_events()
            ):
                pass
            for number in range(5):
                event = alice.event(f"live {number}")
                await alice.publish(event)
                got = await next_event(stream, output.id)
                assert got.id().to_hex() == event.id().to_hex()

    scenario(story)


def test_only_the_newest_version_of_an_address_is_stored(scenario):
    async def story(url: str) -> None:
        async with person(url) as alice:
            await alice.publish(alice.event('{"name":"old"}', kind=0, ago=20))
            await alice.publish(alice.event('{"name":"new"}', kind=0, ago=10))
            assert (await alice.refused(alice.event("older", kind=0, ago=30))).startswith("dup")
            assert await alice.fetch_mine(0) == ['{"name":"new"}']

            for d, text, ago in (("a", "a1", 9), ("b", "b1", 8), ("a", "a2", 7)):
                tags = (Tag.identifier(d),)
                await alice.publish(alice.event(text, kind=30023, tags=tags, ago=ago))
            assert await alice.fetch_mine(30023) == ["a2", "b1"]

    scenario(story)


def test_only_the_author_deletes_an_event(scenario):
    async def story(url: str) -> None:
        async with person(url) as alice, person(url) as mallory:
            note = alice.event("regretted")
            await alice.publish(note)
            await mallory.publish(mallory.event("", kind=5, tags=(Tag.event(note.id()),)))
            assert await alice.fetch_mine(1) == ["regretted"]
            await alice.publish(alice.event("", kind=5, tags=(Tag.event(note.id()),)))
            assert await alice.fetch_mine(1) == []
            assert (await alice.refused(note)).startswith("blocked")

    scenario(story)


def test_gift_wraps_reach_their_receiver_who_authenticates_by_itself(scenario):
    async def story(url: str) -> None:
        async with person(url) as alice, person(url) as bob, person(url) as eve:
            wrap = nip17_make_private_msg(alice.keys, bob.keys.public_key(), "for your eyes only")
            await alice.publish(wrap)
            for_bob = Filter().kind(Kind(1059)).pubkey(bob.keys.public_key())
            events = await bob.client.fetch_events(ReqTarget.auto([for_bob]), PATIENCE)
            opened = UnwrappedGift.from_gift_wrap(bob.keys, events[0])
            assert opened.rumor().content() == "for your eyes only"
            assert await eve.fetch(for_bob) == []

    scenario(story)


def test_direct_messages_are_for_the_two_of_them(scenario):
    async def story(url: str) -> None:
        async with (
            person(url) as alice,
            person(url) as bob,
            person(url) as eve,
            person(url, authenticates=False) as nobody,
        ):
            to = bob.keys.public_key()
            secret = nip04_encrypt(alice.keys.secret_key(), to, "psst")
            await alice.publish(alice.event(secret, kind=4, tags=(Tag.public_key(to),)))
            asked = Filter().kind(Kind(4)).author(alice.keys.public_key())
            assert await alice.fetch(asked) == [secret]
            assert await bob.fetch(asked) == [secret]
            assert await eve.fetch(asked) == []
            assert await nobody.fetch(asked) == []

    scenario(story)


def test_only_its_author_publishes_a_protected_event(scenario):
    async def story(url: str) -> None:
        async with person(url) as alice, person(url) as mallory:
            event = alice.event("mine to publish", tags=(Tag.protected(),))
            assert (await mallory.refused(event)).startswith("auth-required")
            await alice.publish(event)
            assert await mallory.fetch(Filter().id(event.id())) == ["mine to publish"]

    scenario(story)


def test_events_sent_at_once_are_all_stored(scenario):
    async def story(url: str) -> None:
        async with person(url) as alice, person(url) as bob:
            events = [alice.event(f"number {number}", ago=number) for number in range(200)]
            await asyncio.gather(*(alice.publish(event) for event in events))
            mine = Filter().author(alice.keys.public_key())
            assert await bob.fetch(mine) == [f"number {number}" for number in range(200)]
            assert await bob.fetch(mine.limit(20)) == [f"number {number}" for number in range(20)]
            assert await bob.count(mine) == 200

    scenario(story)
