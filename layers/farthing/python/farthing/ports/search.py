"""The port for full-text search (NIP-50). One machine has an index. A deployment has none, and its
relay information document does not list NIP-50."""

from typing import Protocol


class Search(Protocol):
    @property
    def is_on(self) -> bool: ...

    def find(self, text: str, most: int) -> list[str]:
        """Ids of events whose content has all the words, best matches first. Some of these events
        may be deleted meanwhile."""
        ...


class NoSearch:
    is_on = False

    def find(self, text: str, most: int) -> list[str]:
        return []
