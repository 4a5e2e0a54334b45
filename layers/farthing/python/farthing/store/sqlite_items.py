"""The stored form of items in SQLite: JSON, with marks for values that JSON cannot express."""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from farthing.store.table import Item, Value

# A map whose only name is a mark stands for a value. Other names that begin like a mark get another
# $.
_BYTES = "$bytes"
_INT = "$int"
_MARK = "$"

_SMALLEST = -(2**63)
_LARGEST = 2**64 - 1


def encode_item(item: Item) -> bytes:
    try:
        encoded = orjson.dumps(item)
    except TypeError:  # bytes, or an integer over 64 bits
        return orjson.dumps(_marked(item))
    # A quote before a $ may begin a name that looks like a mark. `_marked` refuses empty names.
    doubtful = b'"$' in encoded or b'"":' in encoded
    return orjson.dumps(_marked(item)) if doubtful else encoded


def decode_item(encoded: bytes) -> dict[str, Any]:
    item: dict[str, Any] = orjson.loads(encoded)
    return _unmarked_map(item) if b'"$' in encoded else item


def decode_items(encoded: Iterable[bytes]) -> list[dict[str, Any]]:
    """Many items as one array: parsing each separately takes several times as long."""
    array = b"[%b]" % b",".join(encoded)
    items: list[dict[str, Any]] = orjson.loads(array)
    return [_unmarked_map(item) for item in items] if b'"$' in array else items


def decode_array(text: str) -> list[Any]:
    """A sequence of numbers, strings and items."""
    array: list[Any] = orjson.loads(f"[{text}]")
    return _unmarked_elements(array) if '"$' in text else array


def decode_arrays(text: str) -> list[list[Any]]:
    """Several such sequences."""
    arrays: list[list[Any]] = orjson.loads(f"[{text}]")
    return list(map(_unmarked_elements, arrays)) if '"$' in text else arrays


def _unmarked_elements(array: list[Any]) -> list[Any]:
    return [_unmarked_map(each) if type(each) is dict else each for each in array]


def _marked(value: Value) -> Value:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value) if _SMALLEST <= value <= _LARGEST else {_INT: str(value)}
    if isinstance(value, bytes | bytearray):
        return {_BYTES: b64encode(value).decode()}
    if isinstance(value, list | tuple):
        return [_marked(part) for part in value]
    if isinstance(value, Mapping):
        return {_marked_name(name): _marked(part) for name, part in value.items()}
    raise TypeError(f"cannot keep a {type(value).__name__}")


def _marked_name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError("the names in a map are strings")
    if not name:
        raise ValueError("a name in a map is empty")
    return _MARK + name if name[0] == _MARK else str(name)


def _unmarked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unmarked(part) for part in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        if _BYTES in value:
            return b64decode(value[_BYTES])
        if _INT in value:
            return int(value[_INT])
    return _unmarked_map(value)


def _unmarked_map(value: dict[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(_MARK): _unmarked(part) for name, part in value.items()}
