"""The price of storing an event: the single source of every price that we state or charge."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class Priced(Protocol):
    """The properties of an event, of any format, that decide its price."""

    @property
    def kind(self) -> int: ...

    @property
    def tags(self) -> Sequence[Sequence[str]]: ...

    def indexed_tags(self) -> Iterable[tuple[str, str]]: ...


@dataclass(frozen=True, slots=True)
class Tariff:
    """A kind's flat price replaces the price by size. `size` counts the TOON bytes that arrive.

    Each indexed tag needs a write of its own, which costs more than the bytes of a short tag pay.
    So the price by size is at least `per_tag` for each indexed tag beyond the first `free_tags`.
    """

    per_byte: int
    kinds: Mapping[int, int]
    asset_code: str
    asset_scale: int
    per_tag: int = 0
    free_tags: int = 0

    def price(self, kind: int, size: int, tags: int = 0) -> int:
        """`tags` counts the different indexed tags."""
        flat = self.kinds.get(kind)
        if flat is not None:
            return flat
        by_size = size * self.per_byte
        if tags <= self.free_tags or not by_size:
            return by_size
        return max(by_size, (tags - self.free_tags) * self.per_tag)

    def price_event(self, event: Priced, size: int) -> int:
        # Counting different tags is work, and hardly any event has so many.
        many = sum(map(len, event.tags)) > self.free_tags
        return self.price(event.kind, size, len(set(event.indexed_tags())) if many else 0)

    @property
    def is_free(self) -> bool:
        """Whether all events are free."""
        return self.per_byte == 0 and not any(self.kinds.values())

    def may_charge(self, kind: int) -> bool:
        return self.kinds.get(kind, self.per_byte) > 0

    def as_tags(self) -> list[list[str]]:
        """The tags of kind 10032."""
        return [
            ["price_per_byte", str(self.per_byte)],
            ["price_per_tag", str(self.per_tag)],
            ["free_tags", str(self.free_tags)],
            *([f"price_kind_{kind}", str(price)] for kind, price in sorted(self.kinds.items())),
            ["asset_code", self.asset_code],
            ["asset_scale", str(self.asset_scale)],
        ]

    def as_fees(self) -> dict[str, Any]:
        """For `fees` of the relay information document (NIP-11). All fields but the flat prices are
        our own."""
        flat = [
            {"kinds": [kind], "amount": price, "unit": self.unit}
            for kind, price in sorted(self.kinds.items())
        ]
        return {
            "publication": flat,
            "publication_per_byte": {"amount": self.per_byte, "unit": self.unit},
            "publication_per_tag": {
                "amount": self.per_tag,
                "free_tags": self.free_tags,
                "unit": self.unit,
            },
        }

    @property
    def unit(self) -> str:
        """The smallest amount, such as `USD/1e9` for a billionth of a dollar."""
        return f"{self.asset_code}/1e{self.asset_scale}"
