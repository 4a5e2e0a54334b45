"""NIP-19: keys, events and addresses as bech32 text, for people to read, copy and type.

The protocol itself never carries these forms.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from farthing.nostr.events import is_hex64
from farthing.nostr.kinds import MAX_KIND

# The limit of the NIP: bech32's limit of 90 characters is too small for relays.
TEXT_MAX: Final = 5000

_ALPHABET: Final = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_DIGITS: Final = {letter: digit for digit, letter in enumerate(_ALPHABET)}
_GENERATOR: Final = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
_CHECKSUM_LENGTH: Final = 6
_HRP: Final = re.compile(r"[\x21-\x7e]{1,83}").fullmatch

_KEY_LENGTH: Final = 32
_SPECIAL, _RELAY, _AUTHOR, _KIND = range(4)


class InvalidNip19(ValueError):
    """Text that is not a NIP-19 entity, or a value that cannot be encoded as one."""


class Npub(NamedTuple):
    pubkey: str


@dataclass(frozen=True, slots=True)
class Nsec:
    secret_key: str = field(repr=False)


class Note(NamedTuple):
    id: str


class Nprofile(NamedTuple):
    pubkey: str
    relays: tuple[str, ...] = ()


class Nevent(NamedTuple):
    id: str
    relays: tuple[str, ...] = ()
    author: str | None = None
    kind: int | None = None


class Naddr(NamedTuple):
    identifier: str
    pubkey: str
    kind: int
    relays: tuple[str, ...] = ()


Entity: TypeAlias = Npub | Nsec | Note | Nprofile | Nevent | Naddr


def encode(entity: Entity) -> str:
    match entity:
        case Npub(pubkey):
            return _text("npub", _key(pubkey))
        case Nsec(secret_key):
            return _text("nsec", _key(secret_key))
        case Note(id):
            return _text("note", _key(id))
        case Nprofile(pubkey, relays):
            return _text("nprofile", _items((_SPECIAL, _key(pubkey)), *_relays(relays)))
        case Nevent(id, relays, author, kind):
            items = [(_SPECIAL, _key(id)), *_relays(relays)]
            if author is not None:
                items.append((_AUTHOR, _key(author)))
            if kind is not None:
                items.append((_KIND, _kind(kind)))
            return _text("nevent", _items(*items))
        case Naddr(identifier, pubkey, kind, relays):
            return _text(
                "naddr",
                _items(
                    (_SPECIAL, _utf8(identifier)),
                    *_relays(relays),
                    (_AUTHOR, _key(pubkey)),
                    (_KIND, _kind(kind)),
                ),
            )


def decode(text: str) -> Entity:
    """The entity in the text. TLV items of unknown types are skipped."""
    prefix, octets = _octets(text)
    match prefix:
        case "npub":
            return Npub(_hex(octets))
        case "nsec":
            return Nsec(_hex(octets))
        case "note":
            return Note(_hex(octets))
        case "nprofile":
            items = _Items(octets)
            return Nprofile(_hex(items.one(_SPECIAL)), items.relays())
        case "nevent":
            items = _Items(octets)
            author, kind = items.first(_AUTHOR), items.first(_KIND)
            return Nevent(
                _hex(items.one(_SPECIAL)),
                items.relays(),
                None if author is None else _hex(author),
                None if kind is None else _number(kind),
            )
        case "naddr":
            items = _Items(octets)
            return Naddr(
                _string(items.one(_SPECIAL)),
                _hex(items.one(_AUTHOR)),
                _number(items.one(_KIND)),
                items.relays(),
            )
    raise InvalidNip19(f"expected npub, nsec, note, nprofile, nevent or naddr, got {prefix}")


def parse_public_key(text: str) -> str:
    """The key (hex) that a person gave as npub, nprofile or 64 hexadecimal digits.

    Does not check that the key is the x-coordinate of a point.
    """
    if is_hex64(text.lower()):
        return text.lower()
    match decode(text):
        case Npub(pubkey) | Nprofile(pubkey):
            return pubkey
    raise InvalidNip19("expected a public key as npub or hexadecimal")


class _Items:
    """The type-length-value items of an entity."""

    def __init__(self, octets: bytes) -> None:
        self._items: list[tuple[int, bytes]] = []
        at = 0
        while at < len(octets):
            value = octets[at + 2 : at + 2 + octets[at + 1]] if at + 1 < len(octets) else b""
            if at + 1 >= len(octets) or len(value) != octets[at + 1]:
                raise InvalidNip19("an item is cut short")
            self._items.append((octets[at], value))
            at += 2 + len(value)

    def first(self, kind: int) -> bytes | None:
        return next((value for each, value in self._items if each == kind), None)

    def one(self, kind: int) -> bytes:
        value = self.first(kind)
        if value is None:
            raise InvalidNip19(f"item {kind} is missing")
        return value

    def relays(self) -> tuple[str, ...]:
        return tuple(_string(value) for each, value in self._items if each == _RELAY)


def _items(*items: tuple[int, bytes]) -> bytes:
    for _, value in items:
        if len(value) > 255:
            raise InvalidNip19("an item has at most 255 octets")
    return b"".join(bytes([kind, len(value)]) + value for kind, value in items)


def _relays(relays: Iterable[str]) -> Iterator[tuple[int, bytes]]:
    return ((_RELAY, _utf8(relay)) for relay in relays)


def _key(value: str) -> bytes:
    if not is_hex64(value):
        raise InvalidNip19("a key or id is 64 hexadecimal digits in lower case")
    return bytes.fromhex(value)


def _hex(octets: bytes) -> str:
    if len(octets) != _KEY_LENGTH:
        raise InvalidNip19(f"a key or id has {_KEY_LENGTH} octets, not {len(octets)}")
    return octets.hex()


def _kind(kind: int) -> bytes:
    if not 0 <= kind <= MAX_KIND:
        raise InvalidNip19(f"a kind lies between 0 and {MAX_KIND}")
    return kind.to_bytes(4, "big")


def _number(octets: bytes) -> int:
    number = int.from_bytes(octets, "big")
    if len(octets) != 4 or number > MAX_KIND:
        raise InvalidNip19(f"a kind has 4 octets and lies between 0 and {MAX_KIND}")
    return number


def _utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidNip19("text is not UTF-8") from None


def _string(octets: bytes) -> str:
    try:
        return octets.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidNip19("text is not UTF-8") from None


def _text(prefix: str, octets: bytes) -> str:
    digits = _regroup(octets, 8, 5, pad=True)
    text = prefix + "1" + "".join(_ALPHABET[each] for each in digits + _checksum(prefix, digits))
    if len(text) > TEXT_MAX:
        raise InvalidNip19(f"more than {TEXT_MAX} characters")
    return text


def _octets(text: str) -> tuple[str, bytes]:
    if len(text) > TEXT_MAX:
        raise InvalidNip19(f"more than {TEXT_MAX} characters")
    if not text.isascii() or text not in (text.lower(), text.upper()):
        raise InvalidNip19("not ASCII in one case")
    prefix, _, rest = text.lower().rpartition("1")
    if _HRP(prefix) is None or len(rest) < _CHECKSUM_LENGTH:
        raise InvalidNip19("not bech32")
    try:
        digits = [_DIGITS[letter] for letter in rest]
    except KeyError:
        raise InvalidNip19("a letter is not of bech32") from None
    if _polymod([*_expand(prefix), *digits]) != 1:
        raise InvalidNip19("the checksum does not match")
    return prefix, bytes(_regroup(digits[:-_CHECKSUM_LENGTH], 5, 8, pad=False))


def _checksum(prefix: str, digits: list[int]) -> list[int]:
    residue = _polymod([*_expand(prefix), *digits, *[0] * _CHECKSUM_LENGTH]) ^ 1
    return [residue >> 5 * (5 - at) & 31 for at in range(_CHECKSUM_LENGTH)]


def _expand(prefix: str) -> list[int]:
    codes = prefix.encode("ascii")
    return [code >> 5 for code in codes] + [0] + [code & 31 for code in codes]


def _polymod(digits: Iterable[int]) -> int:
    """The remainder of BIP-173's cyclic code; 1 for text with the right checksum."""
    residue = 1
    for digit in digits:
        top = residue >> 25
        residue = (residue & 0x1FFFFFF) << 5 ^ digit
        for at, term in enumerate(_GENERATOR):
            if top >> at & 1:
                residue ^= term
    return residue


def _regroup(values: Iterable[int], width: int, into: int, *, pad: bool) -> list[int]:
    """The bits, regrouped to another width."""
    bits = held = 0
    groups = []
    for value in values:
        bits = (bits << width | value) & 0xFFFF
        held += width
        while held >= into:
            held -= into
            groups.append(bits >> held & (1 << into) - 1)
    left = bits & (1 << held) - 1
    if pad:
        return [*groups, left << into - held] if held else groups
    if held >= width or left:
        raise InvalidNip19("bits are left over")
    return groups
