"""A store that is a list and follows the NIPs to the letter, slowly."""

from typing import Any

from farthing.nostr.events import Event
from tests.nostr.naive import naive_match


def naive_address(event: Event) -> str | None:
    if event.kind in (0, 3) or 10000 <= event.kind <= 19999:
        return f"{event.kind}:{event.pubkey}:"
    if 30000 <= event.kind <= 39999:
        for tag in event.tags:
            if len(tag) > 1 and tag[0] == "d":
                return f"{event.kind}:{event.pubkey}:{tag[1]}"
        return f"{event.kind}:{event.pubkey}:"
    return None


def naive_expiration(event: Event) -> int | None:
    for tag in event.tags:
        if len(tag) > 1 and tag[0] == "expiration":
            return int(tag[1])
    return None


def newest_first(events: list[Event]) -> list[Event]:
    return sorted(events, key=lambda event: (-event.created_at, event.id))


class NaiveStore:
    def __init__(self) -> None:
        self.stored: list[Event] = []
        self.accepted: list[Event] = []  # whatever was stored once, also if replaced since

    def save(self, event: Event) -> str:
        if event in self.stored:
            return "DUPLICATE"
        if any(self._deletes(deletion, event) for deletion in self.accepted):
            return "DELETED"
        rivals = [
            other
            for other in self.accepted
            if naive_address(other) is not None and naive_address(other) == naive_address(event)
        ]
        if rivals and newest_first([*rivals, event])[0] != event:
            return "SUPERSEDED"
        self.stored = [other for other in self.stored if other not in rivals]
        self.stored.append(event)
        self.accepted.append(event)
        self.stored = [other for other in self.stored if not self._deletes(event, other)]
        return "STORED"

    @staticmethod
    def _deletes(deletion: Event, event: Event) -> bool:
        if deletion.kind != 5 or deletion.pubkey != event.pubkey or event.kind == 5:
            return False
        for tag in deletion.tags:
            if len(tag) < 2:
                continue
            if tag[0] == "e" and tag[1] == event.id:
                return True
            older = event.created_at <= deletion.created_at
            if tag[0] == "a" and tag[1] == naive_address(event) and older:
                return True
        return False

    def matching(self, filter: dict[str, Any], now: int) -> list[Event]:
        return newest_first(
            [
                event
                for event in self.stored
                if naive_match(event.as_dict(), filter)
                and (naive_expiration(event) is None or naive_expiration(event) > now)
            ]
        )

    def find(self, filters: list[dict[str, Any]], now: int) -> list[str]:
        found: list[Event] = []
        for filter in filters:
            found += self.matching(filter, now)[: filter.get("limit", 10**9)]
        return [event.id for event in newest_first(list(dict.fromkeys(found)))]
