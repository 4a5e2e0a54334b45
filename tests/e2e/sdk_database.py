"""A database for nostr-sdk's client that is a dict: what its sync compares, and where it puts what
it fetches. Its own on disk writes each event by itself, which takes minutes for ten thousand."""

from collections.abc import Iterable

from nostr_sdk import (
    DatabaseEventStatus,
    Event,
    EventId,
    Filter,
    NostrDatabase,
    NostrDatabaseFeatures,
    SaveEventStatus,
)


class DictDatabase(NostrDatabase):
    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.events = {event.id().to_hex(): event for event in events}

    def backend(self) -> str:
        return "dict"

    def features(self) -> NostrDatabaseFeatures:
        return NostrDatabaseFeatures(
            persistent=False,
            event_expiration=False,
            full_text_search=False,
            request_to_vanish=False,
        )

    async def save_event(self, event: Event) -> SaveEventStatus:
        self.events[event.id().to_hex()] = event
        return SaveEventStatus.success()

    async def check_id(self, event_id: EventId) -> DatabaseEventStatus:
        known = event_id.to_hex() in self.events
        return DatabaseEventStatus.SAVED if known else DatabaseEventStatus.NOT_EXISTENT

    async def event_by_id(self, event_id: EventId) -> Event | None:
        return self.events.get(event_id.to_hex())

    async def count(self, filter: Filter) -> int:
        return len(await self.query(filter))

    async def query(self, filter: Filter) -> list[Event]:
        return [event for event in self.events.values() if filter.match_event(event)]

    async def delete_events(self, filter: Filter) -> None:
        for event in await self.query(filter):
            del self.events[event.id().to_hex()]

    async def wipe(self) -> None:
        self.events.clear()
