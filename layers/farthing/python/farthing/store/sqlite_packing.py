"""The stored form of most keys and items in SQLite: bytes instead of hexadecimal digits.

With half as many octets, a commit writes half as many pages. Keys and items that do not have
exactly the expected form are stored unchanged: keys as text, items as JSON (see `sqlite_items`).

    events     the id of an event is 32 octets; its item is the author, the signature and the JSON
               between them, and the id is not repeated
    postings   a list is known by a digest of its name, and a sort key is 40 octets
    changes    ids and authors are 32 octets, and so is every part of a log entry
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from struct import Struct
from struct import error as StructError
from typing import Any

from farthing.store.answers import PassedEvent
from farthing.store.spaces import NOSTR
from farthing.store.sqlite_items import decode_item, encode_item
from farthing.store.table import EXPIRES, Item, Table

PACKED = frozenset({Table.EVENTS, Table.POSTINGS, Table.CHANGES})

Part = str | bytes  # a part of a key: octets if it is packed

_SPACE = NOSTR  # the only space whose events have a bare id as their key
_ID_DIGITS = 64
SORT_KEY_DIGITS = 80  # of a posting
_LIST_OCTETS = 16
# Above every packed sort key.
ABOVE_ALL = b"\xff" * (SORT_KEY_DIGITS // 2 + 1)
_HEX = re.compile("[0-9a-f]*")

# The first octet of an item tells its form. JSON begins with a brace.
_EVENT, _POSTING, _EXPIRING_POSTING, _ENTRY, _CHUNK = range(1, 6)
_BRACE = ord("{")

_EVENT_HEAD = Struct(">BHQIH")  # form, kind, created_at, written, octets of other attributes
_POSTING_ITEM = Struct(">BH32sI")  # form, kind, author, written
# For readers of one field of many postings that do not expire.
POSTING_FORM, POSTING_OCTETS = _POSTING, _POSTING_ITEM.size
KIND_AT, AUTHOR_AT, AUTHOR_END, WRITTEN_AT = 1, 3, 35, 35
_POSTING_EXPIRES = Struct(">Q")
_ENTRY_ITEM = Struct(">BH32s")  # form, kind, id
_AUTHOR_OCTETS, _SIGNATURE_OCTETS = 32, 64
_SIGNATURE_AT = _EVENT_HEAD.size + _AUTHOR_OCTETS
_BODY_AT = _SIGNATURE_AT + _SIGNATURE_OCTETS
_EVENT_NAMES = frozenset("jpkcw")
_POSTING_NAMES = frozenset("kpw")
_EXPIRING_POSTING_NAMES = _POSTING_NAMES | {EXPIRES}
_ENTRY_PREFIXES = {"id#": b"\x01", "by#": b"\x02"}
_ENTRY_NAMES_BY_OCTET = {octet[0]: name for name, octet in _ENTRY_PREFIXES.items()}


@lru_cache(4096)
def octets_of(digits: str) -> bytes | None:
    """The octets of lowercase hexadecimal digits, or None for any other text."""
    try:
        octets = bytes.fromhex(digits)
    except ValueError:
        return None
    return octets if octets.hex() == digits else None


@lru_cache(16384)
def list_digest(pk: str) -> bytes:
    return blake2b(pk.encode(), digest_size=_LIST_OCTETS).digest()


def pack_key(table: Table, pk: str, sk: str) -> tuple[Part, Part]:
    """The key of a row in the file. For postings, the sort key decides whether the key is packed;
    in all other tables, the partition key does. Packed sort keys of a partition keep their
    order."""
    if table is Table.POSTINGS:
        octets = pack_sort_key(sk)
        return (pk, sk) if octets is None else (list_digest(pk), octets)
    return pack_partition(table, pk), sk


def pack_sort_key(sk: str) -> bytes | None:
    """The sort key of a posting; None if it is not packed."""
    return octets_of(sk) if len(sk) == SORT_KEY_DIGITS else None


def pack_partition(table: Table, pk: str) -> Part:
    """The packed partition key, in every table but that of postings."""
    octets = None
    if table is Table.EVENTS and len(pk) == _ID_DIGITS:
        octets = octets_of(pk)
    elif table is Table.CHANGES and len(pk) == _ID_DIGITS + 3:
        prefix = _ENTRY_PREFIXES.get(pk[:3])
        number = None if prefix is None else octets_of(pk[3:])
        octets = None if prefix is None or number is None else prefix + number
    return pk if octets is None else octets


def unpack_partition(table: Table, pk: Part) -> str:
    if isinstance(pk, str):
        return pk
    if table is Table.CHANGES:
        return _ENTRY_NAMES_BY_OCTET[pk[0]] + pk[1:].hex()
    return pk.hex()


def pack_bound(bound: str) -> bytes:
    """The packed form of a bound: packed sort keys compare with it as sort keys compare with the
    bound. It equals a packed sort key only if the bound is a sort key."""
    found = _HEX.match(bound, 0, SORT_KEY_DIGITS)
    digits = found[0] if found else ""
    if len(digits) == SORT_KEY_DIGITS:
        octets = bytes.fromhex(digits)
        return octets if len(bound) == SORT_KEY_DIGITS else octets + b"\0"
    following = bound[len(digits) : len(digits) + 1]
    if following > "f":
        return bytes.fromhex(digits.ljust(SORT_KEY_DIGITS, "f")) + b"\0"
    if following > "9":
        digits += "a"
    octets = bytes.fromhex(digits + "0" * (len(digits) % 2))
    return octets if len(octets) < SORT_KEY_DIGITS // 2 else _just_below(octets)


def _just_below(key: bytes) -> bytes:
    """The bound just below this packed sort key, above all smaller ones."""
    *_, last = key
    return key[:-1] if last == 0 else key[:-1] + bytes((last - 1, 0))


def pack_item(table: Table, pk: str, item: Item) -> bytes:
    """The packed form of an item under this partition key."""
    try:
        match table:
            case Table.POSTINGS:
                packed = _pack_posting(item)
            case Table.EVENTS:
                packed = _pack_event(pk, item) if "j" in item else None
            case Table.CHANGES:
                packed = _pack_change(item)
            case _:
                packed = None
    except (StructError, TypeError):  # a number too large, or another type
        packed = None
    return encode_item(item) if packed is None else packed


def unpack_item(pk: str, encoded: bytes) -> dict[str, Any]:
    form = encoded[0]
    if form == _BRACE:
        return decode_item(encoded)
    if form == _EVENT:
        return _unpack_event(pk, encoded)
    if form == _ENTRY:
        _, kind, octets = _ENTRY_ITEM.unpack(encoded)
        return {"i": octets.hex(), "k": kind}
    if form == _CHUNK:
        return {"e": encoded[1:].hex()}
    return _unpack_posting(encoded)


def unpack_postings(encoded: Sequence[bytes]) -> list[dict[str, Any]]:
    """The items of many postings."""
    return [_unpack_posting(each) if each[0] != _BRACE else decode_item(each) for each in encoded]


def _pack_posting(item: Item) -> bytes | None:
    expires = item.get(EXPIRES)
    expected = _POSTING_NAMES if expires is None else _EXPIRING_POSTING_NAMES
    if item.keys() != expected or not _are_integers(item["k"], item["w"]):
        return None
    author = octets_of(item["p"])
    if author is None or len(author) != _AUTHOR_OCTETS:
        return None
    if expires is None:
        return _POSTING_ITEM.pack(_POSTING, item["k"], author, item["w"])
    if not _are_integers(expires):
        return None
    packed = _POSTING_ITEM.pack(_EXPIRING_POSTING, item["k"], author, item["w"])
    return packed + _POSTING_EXPIRES.pack(expires)


def _unpack_posting(encoded: bytes) -> dict[str, Any]:
    form, kind, author, written = _POSTING_ITEM.unpack_from(encoded)
    item = {"k": kind, "p": author.hex(), "w": written}
    if form == _EXPIRING_POSTING:
        (item[EXPIRES],) = _POSTING_EXPIRES.unpack_from(encoded, _POSTING_ITEM.size)
    return item


def _pack_event(pk: str, item: Item) -> bytes | None:
    """Pack JSON that begins and ends as the space says."""
    if not item.keys() >= _EVENT_NAMES:
        return None
    json, pubkey, kind, created_at, written = (item[name] for name in "jpkcw")
    if type(json) is not str or not type(kind) is type(created_at) is type(written) is int:
        return None
    opening = _SPACE.json_opening(pk, pubkey)
    signature = json[-(2 + 2 * _SIGNATURE_OCTETS) : -2]
    closing = _SPACE.json_closing(signature)
    if not (json.startswith(opening) and json.endswith(closing)):
        return None
    author, octets = octets_of(pubkey), _octets_once(signature)
    if author is None or octets is None or len(author) != _AUTHOR_OCTETS:
        return None
    others = b""
    if len(item) > len(_EVENT_NAMES):
        others = encode_item({name: item[name] for name in item if name not in _EVENT_NAMES})
    head = _EVENT_HEAD.pack(_EVENT, kind, created_at, written, len(others))
    body: str = json[len(opening) : -len(closing)]
    return b"".join((head, author, octets, others, body.encode()))


def _unpack_event(pk: str, encoded: bytes) -> dict[str, Any]:
    _, kind, created_at, written, others = _EVENT_HEAD.unpack_from(encoded)
    pubkey = encoded[_EVENT_HEAD.size : _SIGNATURE_AT].hex()
    signature = encoded[_SIGNATURE_AT:_BODY_AT].hex()
    body = encoded[_BODY_AT + others :].decode()
    item = {
        "j": f"{_SPACE.json_opening(pk, pubkey)}{body}{_SPACE.json_closing(signature)}",
        "p": pubkey,
        "k": kind,
        "c": created_at,
        "w": written,
    }
    if others:
        item.update(decode_item(encoded[_BODY_AT : _BODY_AT + others]))
    return item


def passed_event(event_id: bytes, encoded: bytes) -> PassedEvent | None:
    """A stored event in the form that processes pass on; None if the item is a tombstone."""
    if encoded[0] != _EVENT:
        item = decode_item(encoded)
        if "j" not in item:
            return None
        return PassedEvent(
            event_id, bytes.fromhex(item["p"]), item["k"], item["c"], item.get("w", 0),
            item.get(EXPIRES), item.get("r"), item["j"].encode(),
        )  # fmt: skip
    _, kind, created_at, written, others = _EVENT_HEAD.unpack_from(encoded)
    author = encoded[_EVENT_HEAD.size : _SIGNATURE_AT]
    opening = _SPACE.json_opening(event_id.hex(), author.hex())
    closing = _SPACE.json_closing(encoded[_SIGNATURE_AT:_BODY_AT].hex())
    body = _BODY_AT + others
    more = decode_item(encoded[_BODY_AT:body]) if others else {}
    return PassedEvent(
        event_id, author, kind, created_at, written, more.get(EXPIRES), more.get("r"),
        b"%b%b%b" % (opening.encode(), encoded[body:], closing.encode()),
    )  # fmt: skip


def _octets_once(digits: str) -> bytes | None:
    """The octets of digits, for values that do not repeat: without a cache."""
    return octets_of.__wrapped__(digits) if len(digits) == 2 * _SIGNATURE_OCTETS else None


def _pack_change(item: Item) -> bytes | None:
    if len(item) == 2 and "i" in item and "k" in item and type(item["k"]) is int:
        event_id = octets_of(item["i"])
        fits = event_id is not None and len(event_id) == _ID_DIGITS // 2
        return _ENTRY_ITEM.pack(_ENTRY, item["k"], event_id) if fits else None
    if len(item) == 1 and "e" in item:
        entries = octets_of.__wrapped__(item["e"])
        return None if entries is None else bytes((_CHUNK,)) + entries
    return None


def _are_integers(*values: object) -> bool:
    return all(type(value) is int for value in values)
