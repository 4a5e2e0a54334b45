"""Numbers as Aether's JSON writes them: integers, and nanoseconds also as decimal strings."""

import re
from typing import Final

MAX_U16: Final = 2**16 - 1
MAX_U64: Final = 2**64 - 1
SECOND: Final = 10**9  # nanoseconds

_DECIMAL = re.compile(r"0|[1-9][0-9]{0,19}").fullmatch


def u64(value: object) -> int | None:
    """The integer, or None for anything else. `true` and 1.0 are no integers on the wire."""
    return value if type(value) is int and 0 <= value <= MAX_U64 else None


def nanoseconds(value: object) -> int | None:
    """A time. JavaScript cannot write nanoseconds as a number, so decimal text is accepted too."""
    if type(value) is str and _DECIMAL(value):
        return u64(int(value))
    return u64(value)
