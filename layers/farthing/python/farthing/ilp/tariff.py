"""What storing an event costs: the one source of every price that we state or charge."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Tariff:
    """A kind's flat price replaces the price by size. `size` is of the TOON bytes that arrive."""

    per_byte: int
    kinds: Mapping[int, int]
    asset_code: str
    asset_scale: int

    def price(self, kind: int, size: int) -> int:
        return self.kinds.get(kind, size * self.per_byte)

    @property
    def is_free(self) -> bool:
        """Whether nothing costs anything."""
        return self.per_byte == 0 and not any(self.kinds.values())

    def may_charge(self, kind: int) -> bool:
        return self.kinds.get(kind, self.per_byte) > 0

    def as_tags(self) -> list[list[str]]:
        """As kind 10032 states it."""
        return [
            ["price_per_byte", str(self.per_byte)],
            *([f"price_kind_{kind}", str(price)] for kind, price in sorted(self.kinds.items())),
            ["asset_code", self.asset_code],
            ["asset_scale", str(self.asset_scale)],
        ]

    def as_fees(self) -> dict[str, Any]:
        """As the relay information document states it (NIP-11); the price by size is our own."""
        flat = [
            {"kinds": [kind], "amount": price, "unit": self.unit}
            for kind, price in sorted(self.kinds.items())
        ]
        return {
            "publication": flat,
            "publication_per_byte": {"amount": self.per_byte, "unit": self.unit},
        }

    @property
    def unit(self) -> str:
        """The smallest amount there is, as `USD/1e9` for a billionth of a dollar."""
        return f"{self.asset_code}/1e{self.asset_scale}"
