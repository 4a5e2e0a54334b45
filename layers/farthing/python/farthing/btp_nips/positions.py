"""Positions in a subscription's order of delivery, and the backlog of stored events.

Stored events come first and are counted from 1. EOSE has the change number at which the
subscription began. Later events have their own change numbers.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple, Self

NUMBER_MAX: Final = 2**48 - 1
ID_LENGTH: Final = 32

_TEXT = re.compile(r"([sn]):(0|[1-9][0-9]{0,14})").fullmatch


class InvalidPosition(ValueError):
    """A text that is not a position."""


class Position(NamedTuple):
    """Compares in the order of delivery: every stored position is below every live one."""

    is_live: bool
    number: int

    def __str__(self) -> str:
        return f"{'n' if self.is_live else 's'}:{self.number}"

    def to_int(self) -> int:
        """One number with the same order, for counters and conditions of a store."""
        return self.is_live * (NUMBER_MAX + 1) + self.number

    @classmethod
    def from_int(cls, value: int) -> Self:
        if not 0 <= value <= 2 * NUMBER_MAX + 1:
            raise InvalidPosition(f"expected 0 to {2 * NUMBER_MAX + 1}, got {value}")
        is_live, number = divmod(value, NUMBER_MAX + 1)
        return cls(bool(is_live), number)


def stored(number: int) -> Position:
    """The position of the `number`-th stored event, counted from 1."""
    return Position(False, number)


def live(number: int) -> Position:
    """The position of the event with this change number."""
    return Position(True, number)


START: Final = stored(0)  # before the first event
LAST: Final = live(NUMBER_MAX)


def parse_position(text: str) -> Position:
    match = _TEXT(text)
    if match is None or int(match[2]) > NUMBER_MAX:
        raise InvalidPosition("expected s:<count> or n:<change number>")
    return Position(match[1] == "n", int(match[2]))


def pack_backlog(events: Iterable[tuple[int, str]]) -> bytes:
    """The ids of (created_at, id) pairs, oldest first and then lowest id, 32 octets each."""
    return b"".join(bytes.fromhex(id) for _, id in sorted(set(events)))


def backlog_size(backlog: bytes) -> int:
    return len(backlog) // ID_LENGTH


def backlog_behind(backlog: bytes, position: Position, most: int) -> list[tuple[Position, str]]:
    """Up to `most` stored events that come after a position, with their own positions."""
    if position.is_live:
        return []
    numbers = range(position.number, min(position.number + most, backlog_size(backlog)))
    return [(stored(at + 1), _id_at(backlog, at)) for at in numbers]


def _id_at(backlog: bytes, index: int) -> str:
    return backlog[index * ID_LENGTH : (index + 1) * ID_LENGTH].hex()
