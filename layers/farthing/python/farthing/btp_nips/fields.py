"""Reading the fields of an envelope's JSON. The error of each function names the expected and the
actual value."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

from farthing.btp_nips.errors import InvalidBody
from farthing.btp_nips.messages import AMOUNT_MAX
from farthing.nostr.events import is_hex64

Fields = Mapping[str, Any]
Choice = TypeVar("Choice", bound=StrEnum)

_DECIMAL = re.compile(r"0|[1-9][0-9]{0,19}").fullmatch
_SHOWN = 32  # characters of a client's value that an error repeats


def object_in(fields: Fields, name: str) -> Fields:
    value = fields.get(name)
    if type(value) is not dict:
        raise InvalidBody(f"{name}: expected an object, got {_shown(value)}")
    return value


def optional_object(fields: Fields, name: str) -> Fields | None:
    return object_in(fields, name) if name in fields else None


def integer(fields: Fields, name: str, low: int, high: int) -> int:
    value = fields.get(name)
    # bool is an int to isinstance, and 1e3 is a float: neither is an integer on the wire.
    if type(value) is not int or not low <= value <= high:
        raise InvalidBody(f"{name}: expected an integer from {low} to {high}, got {_shown(value)}")
    return value


def optional_integer(fields: Fields, name: str, low: int, high: int) -> int | None:
    return integer(fields, name, low, high) if name in fields else None


def text(fields: Fields, name: str) -> str:
    value = fields.get(name)
    if type(value) is not str:
        raise InvalidBody(f"{name}: expected a string, got {_shown(value)}")
    return value


def optional_text(fields: Fields, name: str) -> str | None:
    return text(fields, name) if name in fields else None


def boolean(fields: Fields, name: str) -> bool:
    value = fields.get(name)
    if type(value) is not bool:
        raise InvalidBody(f"{name}: expected true or false, got {_shown(value)}")
    return value


def amount(fields: Fields, name: str) -> int:
    value = fields.get(name)
    if type(value) is not str or not _DECIMAL(value) or int(value) > AMOUNT_MAX:
        raise InvalidBody(
            f"{name}: expected a decimal string from 0 to {AMOUNT_MAX}, got {_shown(value)}"
        )
    return int(value)


def optional_amount(fields: Fields, name: str) -> int | None:
    return amount(fields, name) if name in fields else None


def hex64(fields: Fields, name: str) -> str:
    value = fields.get(name)
    if not is_hex64(value):
        raise InvalidBody(f"{name}: expected 64 lowercase hexadecimal digits, got {_shown(value)}")
    return str(value)


def optional_choice(fields: Fields, name: str, choices: type[Choice]) -> Choice | None:
    if name not in fields:
        return None
    value = fields[name]
    if type(value) is str:
        for choice in choices:
            if choice.value == value:
                return choice
    names = ", ".join(choice.value for choice in choices)
    raise InvalidBody(f"{name}: expected one of {names}, got {_shown(value)}")


def _shown(value: object) -> str:
    """A value in short, for an error text."""
    if value is None:
        return "nothing"
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "an array"
    shown = repr(value)
    return shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"
