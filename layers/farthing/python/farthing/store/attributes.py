"""Items as DynamoDB's typed JSON, and their size by DynamoDB's rules.

Binary values are raw bytes in botocore's requests, and base64 text in the stream records that
Lambda gets. All other values are the same in both.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any

from farthing.store.table import Item, Key, Value

PK = "pk"
SK = "sk"

TypedValue = dict[str, Any]
TypedItem = dict[str, TypedValue]

_LIST_OVERHEAD = 3
_ELEMENT_OVERHEAD = 1


def marshal(item: Item) -> TypedItem:
    """The item's attributes, for botocore."""
    return {_name(name): typed(value) for name, value in item.items()}


def marshal_json(item: Item) -> TypedItem:
    """The item's attributes, for the JSON of a stream event."""
    return {_name(name): typed(value, _base64) for name, value in item.items()}


def unmarshal(attributes: Mapping[str, TypedValue]) -> dict[str, Value]:
    """An item from botocore, without its key."""
    return {name: plain(value) for name, value in attributes.items() if name not in (PK, SK)}


def unmarshal_json(attributes: Mapping[str, TypedValue]) -> dict[str, Value]:
    """An item from the JSON of a stream event, without its key."""
    return {
        name: plain(value, b64decode) for name, value in attributes.items() if name not in (PK, SK)
    }


def marshal_key(pk: str, sk: str) -> TypedItem:
    return {PK: {"S": pk}, SK: {"S": sk}}


def unmarshal_key(attributes: Mapping[str, TypedValue]) -> Key:
    return attributes[PK]["S"], attributes[SK]["S"]


def _base64(value: bytes) -> str:
    return b64encode(value).decode()


def typed(value: Value, binary: Callable[[bytes], Any] = bytes) -> TypedValue:
    kind = type(value)
    if kind is str:
        return {"S": value}
    if kind is bool:
        return {"BOOL": value}
    if kind is int:
        return {"N": str(value)}
    if value is None:
        return {"NULL": True}
    if isinstance(value, list | tuple):
        return {"L": [typed(part, binary) for part in value]}
    if isinstance(value, Mapping):
        return {"M": {_name(name): typed(part, binary) for name, part in value.items()}}
    return _less_usual(value, binary)


def _less_usual(value: Value, binary: Callable[[bytes], Any]) -> TypedValue:
    if isinstance(value, bytes | bytearray):
        return {"B": binary(bytes(value))}
    if isinstance(value, str):  # for example a member of an enum
        return {"S": str(value)}
    if isinstance(value, int):
        return {"N": str(int(value))}
    raise TypeError(f"expected a value that can be stored, got a {type(value).__name__}")


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError("the names in a map are strings")
    if not name:
        raise ValueError("a name in a map is empty")
    return str(name)


def plain(value: TypedValue, binary: Callable[[Any], bytes] = bytes) -> Value:
    ((kind, content),) = value.items()
    match kind:
        case "S" | "BOOL":
            return content
        case "N":
            return int(content)
        case "L":
            return [plain(part, binary) for part in content]
        case "M":
            return {name: plain(part, binary) for name, part in content.items()}
        case "B":
            return binary(content)
        case "NULL":
            return None
    raise ValueError(f"no such attribute type here: {kind}")


def item_size(pk: str, sk: str, item: Item) -> int:
    """The bytes that DynamoDB bills: names and values of all attributes, including the key."""
    key = len(PK) + len(SK) + len(pk.encode()) + len(sk.encode())
    return key + sum(_attribute_size(name, value) for name, value in item.items())


def value_size(value: Value) -> int:
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, bool) or value is None:
        return 1
    if isinstance(value, int):
        return _number_size(value)
    if isinstance(value, bytes | bytearray):
        return len(value)
    if isinstance(value, list | tuple):
        parts = [value_size(part) for part in value]
    elif isinstance(value, Mapping):
        parts = [_attribute_size(name, part) for name, part in value.items()]
    else:
        raise TypeError(f"expected a value that can be stored, got a {type(value).__name__}")
    return _LIST_OVERHEAD + sum(parts) + _ELEMENT_OVERHEAD * len(parts)


def _attribute_size(name: str, value: Value) -> int:
    return len(_name(name).encode()) + value_size(value)


def _number_size(value: int) -> int:
    """About one byte for two significant digits, plus one, plus one for a minus."""
    digits = len(str(abs(value)).rstrip("0"))
    return (digits + 1) // 2 + 1 + (value < 0)
