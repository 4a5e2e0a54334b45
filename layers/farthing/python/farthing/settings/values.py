"""Values of settings: how each type is read from a variable, and which values are refused. Every
refusal says what was expected and what came."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from farthing.nostr.events import is_hex64, public_key_of
from farthing.nostr.kinds import MAX_KIND, PRIVATE_KINDS

U64_MAX = 2**64 - 1
_NUMBER = re.compile(r"-?[0-9]+")
_TABLE_PREFIX = re.compile(r"[A-Za-z0-9_.-]{0,200}")
BROADCAST_GROUPS = ("mentioned", "followers", "hubs")
_SHOWN = 70  # characters of a wrong value


class InvalidValue(ValueError):
    """A value that a setting cannot have; the message says what it can have."""


def _expected(what: str, value: object) -> InvalidValue:
    return InvalidValue(f"expected {what}, got {str(value)[:_SHOWN]!r}")


# Readers: from the text of a variable to a value.


def read_text(text: str) -> str:
    return text


def read_number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise _expected("a whole number", text)
    return int(text)


def read_optional_number(text: str) -> int | None:
    return read_number(text) if text else None


def read_switch(text: str) -> bool:
    if text not in ("0", "1"):
        raise _expected("1 or 0", text)
    return text == "1"


def read_list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def read_pubkeys(text: str) -> frozenset[str]:
    return frozenset(map(_public_key, read_list(text)))


def read_kinds(text: str) -> frozenset[int]:
    kinds = frozenset(map(read_number, read_list(text)))
    if any(not 0 <= kind <= MAX_KIND for kind in kinds):
        raise _expected(f"kinds from 0 to {MAX_KIND}", text)
    return kinds


def read_secret_key(text: str) -> str:
    """Never shows the key."""
    if not text.startswith("nsec1"):
        return text
    # Loaded where a key has this form only.
    from farthing.nostr.nip19 import InvalidNip19, Nsec, decode

    wrong = InvalidValue("expected 64 lowercase hex digits or an nsec")
    try:
        entity = decode(text)
    except InvalidNip19:
        raise wrong from None
    if not isinstance(entity, Nsec):
        raise wrong
    return entity.secret_key


def read_mapping(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        raise _expected("a JSON object", text) from None
    if type(value) is not dict:
        raise _expected("a JSON object", text)
    return value


READERS: Mapping[object, Callable[[str], Any]] = {
    str: read_text,
    int: read_number,
    int | None: read_optional_number,
    bool: read_switch,
    tuple[str, ...]: read_list,
    frozenset[str]: read_pubkeys,
    frozenset[int]: read_kinds,
    Mapping[str, int]: read_mapping,
}


def _public_key(text: str) -> str:
    if text.startswith(("npub1", "nprofile1")):
        from farthing.nostr.nip19 import InvalidNip19, parse_public_key

        try:
            return parse_public_key(text)
        except InvalidNip19:
            pass
    if not is_hex64(text):
        raise _expected("a public key of 64 lowercase hex digits or an npub", text)
    return text


# Checks of values that have their type.


def check_number(number: int) -> None:
    if not 0 <= number <= U64_MAX:
        raise _expected(f"a number from 0 to {U64_MAX}", number)


def at_most(most: int) -> Callable[[int], None]:
    def check(number: int) -> None:
        if number > most:
            raise _expected(f"a number from 0 to {most}", number)

    return check


def between(least: int, most: int) -> Callable[[int], None]:
    def check(number: int) -> None:
        if not least <= number <= most:
            raise _expected(f"a number from {least} to {most}", number)

    return check


def check_secret_key(key: str) -> None:
    """Never shows the key."""
    if not is_hex64(key):
        raise InvalidValue("expected 64 lowercase hex digits")
    try:
        public_key_of(bytes.fromhex(key))
    except ValueError:  # zero, or not below the order of the curve
        raise InvalidValue("expected a key of secp256k1") from None


def check_public_key(key: str) -> None:
    if not is_hex64(key):
        raise _expected("64 lowercase hexadecimal digits", key)


def check_derived_keys(text: str) -> None:
    keys = text.split(",")
    if len(keys) not in (2, 5) or not all(map(is_hex64, keys)):
        raise InvalidValue("expected two or five keys of 64 lowercase hexadecimal digits")


def one_of(*words: str) -> Callable[[str], None]:
    def check(text: str) -> None:
        if text not in words:
            raise _expected(" or ".join(words), text)

    return check


def each_of(*words: str) -> Callable[[tuple[str, ...]], None]:
    def check(texts: tuple[str, ...]) -> None:
        for text in texts:
            if text not in words:
                raise _expected(" or ".join(words), text)

    return check


def url_of(*schemes: str) -> Callable[[str], None]:
    """A check for URLs with one of these schemes and a host, and without query and user."""
    wanted = " or ".join(f"{scheme}://" for scheme in schemes)

    def check(url: str) -> None:
        try:
            parts = urlsplit(url)
            plain = parts.scheme in schemes and parts.hostname and parts.port != 0
        except ValueError:
            raise _expected(f"a URL with {wanted}", url) from None
        if not plain or parts.query or parts.fragment or "@" in parts.netloc or " " in url:
            raise _expected(f"a URL with {wanted}", url)

    return check


def check_present(text: str) -> None:
    if not text.strip():
        raise _expected("a text that is not empty", text)


def check_json_object(text: str) -> None:
    read_mapping(text)


def check_prices(prices: Mapping[Any, Any]) -> None:
    for kind, price in prices.items():
        known = type(kind) is str and kind.isdecimal() and int(kind) <= MAX_KIND
        # A higher price could not be paid by one packet.
        if not known or type(price) is not int or not 0 <= price <= U64_MAX:
            raise _expected(f"kinds from 0 to {MAX_KIND} with whole numbers", f"{kind}: {price}")


def check_public_kinds(kinds: frozenset[int]) -> None:
    private = sorted(kinds & PRIVATE_KINDS)
    if private:
        raise _expected("kinds that are not private", private[0])


def check_shares(shares: Mapping[Any, Any]) -> None:
    whole = all(type(share) is int and share >= 0 for share in shares.values())
    if not whole or not set(shares) <= set(BROADCAST_GROUPS) or sum(shares.values()) > 100:
        groups = ", ".join(BROADCAST_GROUPS)
        raise _expected(f"percentages of {groups}, at most 100 together", dict(shares))


def each_url_of(*schemes: str) -> Callable[[tuple[str, ...]], None]:
    def check(urls: tuple[str, ...]) -> None:
        for url in urls:
            url_of(*schemes)(url)

    return check


def check_table_prefix(text: str) -> None:
    if not _TABLE_PREFIX.fullmatch(text):
        raise _expected("letters, digits, dots, hyphens and underscores", text)


def check_networks(texts: tuple[str, ...]) -> None:
    from ipaddress import ip_network

    for text in texts:
        try:
            ip_network(text)
        except ValueError:
            raise _expected("addresses or networks such as 10.0.0.0/8", text) from None


def check_token(token: str) -> None:
    """Never shows the token."""
    if not (token.isascii() and token.isprintable()) or " " in token or len(token) < 16:
        raise InvalidValue("expected a token of at least 16 printable characters without spaces")
