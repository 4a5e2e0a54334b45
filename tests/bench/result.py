"""What a benchmark finds: rows with a target each, as a table and as JSON."""

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

_COLUMNS = ("bench", "measured", "against", "ratio", "target", "verdict")


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on a row's ratio, or on what was measured where nothing stands against it."""

    bound: float
    at_least: bool = False

    def holds(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {_number(self.bound)}"


def at_least(bound: float) -> Target:
    return Target(bound, at_least=True)


def at_most(bound: float) -> Target:
    return Target(bound)


@dataclass(frozen=True, slots=True)
class Row:
    """`against` was measured in the same run; the ratio is what counts then."""

    name: str
    measured: float
    unit: str
    against: float | None = None
    against_name: str = ""
    target: Target | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        return self.measured / self.against if self.against else None

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        value = self.measured if self.ratio is None else self.ratio
        return "pass" if self.target.holds(value) else "miss"

    def as_dict(self) -> dict[str, Any]:
        target = None if self.target is None else str(self.target)
        return {
            "name": self.name,
            "measured": self.measured,
            "unit": self.unit,
            "against": self.against,
            "against_name": self.against_name,
            "ratio": self.ratio,
            "target": target,
            "verdict": self.verdict,
            "note": self.note,
        }

    def cells(self) -> tuple[str, ...]:
        against = ""
        if self.against is not None:
            against = f"{_number(self.against)} {self.against_name}".strip()
        return (
            self.name,
            f"{_number(self.measured)} {self.unit}".strip(),
            against,
            "" if self.ratio is None else f"{self.ratio:.3f}",
            "" if self.target is None else str(self.target),
            self.verdict,
        )


def _number(value: float) -> str:
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def table(rows: Sequence[Row]) -> str:
    lines = [_COLUMNS, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_COLUMNS))]
    text = [_aligned(line, widths) for line in lines]
    text.insert(1, "  ".join("-" * width for width in widths))
    text += [f"* {row.name}: {row.note}" for row in rows if row.note]
    return "\n".join(text)


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = zip(cells, widths, strict=True)
    return "  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)])


def document(rows: Sequence[Row], *, quick: bool) -> dict[str, Any]:
    return {
        "taken": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": quick,
        "machine": {
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}",
        },
        "rows": [row.as_dict() for row in rows],
    }
