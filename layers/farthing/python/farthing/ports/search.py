"""The port for full-text search (NIP-50). One machine has an index; a deployment has none unless
somebody brings one, and then the relay does not say that it can search."""

from typing import Protocol


class Search(Protocol):
    @property
    def is_on(self) -> bool: ...

    def find(self, text: str, most: int) -> list[str]:
        """Ids of events whose content has all the words, the best matches first. What has been
        deleted since may be among them."""
        ...


class NoSearch:
    is_on = False

    def find(self, text: str, most: int) -> list[str]:
        return []
