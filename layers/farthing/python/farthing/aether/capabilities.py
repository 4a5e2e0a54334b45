"""Capability tokens: the owner allows other keys to write, and they may pass on a part of their
rights.

Uses and revocations are counted by the store; `Grant` names the tokens to count.
"""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import orjson
from blake3 import blake3

from farthing.aether import keys
from farthing.aether.errors import CapabilityRefused
from farthing.aether.numbers import nanoseconds, u64

MAX_TOKENS: Final = 8
MAX_CHAIN_OCTETS: Final = 8192
WRITE: Final = "relay:events:write"

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_FIELDS: Final = frozenset({"issuer", "subject", "capability", "caveats", "sig"})
# `ipaddress` also accepts netmasks and scopes, which are not CIDR.
_CIDR = re.compile(r"[0-9a-fA-F:.]+(?:/[0-9]{1,3})?").fullmatch


@dataclass(frozen=True, slots=True)
class Caveats:
    """The conditions of a token. A field that is None sets no condition."""

    not_before: int | None = None  # nanoseconds, inclusive
    not_after: int | None = None  # nanoseconds, inclusive
    max_uses: int | None = None
    ip: tuple[Network, ...] | None = None


@dataclass(frozen=True, slots=True)
class Token:
    id: str  # the BLAKE3 hash that the issuer signed
    issuer: str
    subject: str
    capability: str
    caveats: Caveats
    sig: str


@dataclass(frozen=True, slots=True)
class Grant:
    """A chain that allows a write, root first."""

    tokens: tuple[Token, ...]

    @property
    def uses(self) -> tuple[tuple[str, int | None], ...]:
        """The id of each token and its limit of uses. A write counts as one use of every token."""
        return tuple((token.id, token.caveats.max_uses) for token in self.tokens)


def write_capability(kind: int) -> str:
    """The capability that is needed to write an event of this kind."""
    return f"{WRITE}:{kind}"


def covers(capability: str, needed: str) -> bool:
    """Whether one capability contains another: its segments begin the other's."""
    segments = capability.split(":")
    return needed.split(":")[: len(segments)] == segments


def canonical_json(
    issuer: str, subject: str, capability: str, caveats: Mapping[str, object]
) -> bytes:
    """The octets whose hash the issuer signs: keys sorted, no white space, UTF-8."""
    payload = {
        "issuer": issuer,
        "subject": subject,
        "capability": capability,
        "caveats": caveats,
    }
    return orjson.dumps(payload, option=orjson.OPT_SORT_KEYS)


def token_id(issuer: str, subject: str, capability: str, caveats: Mapping[str, object]) -> str:
    """The hash that the issuer signs, and by which the token is counted and revoked."""
    try:
        return blake3(canonical_json(issuer, subject, capability, caveats)).hexdigest()
    except orjson.JSONEncodeError:  # a lone surrogate
        raise CapabilityRefused("capability: expected valid Unicode") from None


def issue(
    seed: bytes, *, subject: str, capability: str, caveats: dict[str, object]
) -> dict[str, Any]:
    """A signed token, in its JSON form. Raises CapabilityRefused if no relay would accept the
    token."""
    parse_caveats(caveats)
    issuer = keys.public_key(seed)
    identity = token_id(issuer, subject, capability, caveats)
    token = {
        "issuer": issuer,
        "subject": subject,
        "capability": capability,
        "caveats": caveats,
        "sig": keys.sign(seed, bytes.fromhex(identity)),
    }
    parse_token(token)
    return token


def parse_token(value: object) -> Token:
    """The token that a decoded JSON value describes. Checks the shape, not the signature."""
    if type(value) is not dict or value.keys() != _FIELDS:
        raise CapabilityRefused(f"token: expected an object with {', '.join(sorted(_FIELDS))}")
    issuer, subject = value["issuer"], value["subject"]
    if not keys.is_key(issuer) or not keys.is_key(subject):
        raise CapabilityRefused("issuer, subject: expected 64 lower-case hexadecimal digits")
    if not keys.is_signature(value["sig"]):
        raise CapabilityRefused("sig: expected 128 lower-case hexadecimal digits")
    capability = value["capability"]
    if type(capability) is not str:
        raise CapabilityRefused("capability: expected text")
    caveats = parse_caveats(value["caveats"])
    identity = token_id(issuer, subject, capability, value["caveats"])
    return Token(identity, issuer, subject, capability, caveats, value["sig"])


def parse_caveats(value: object) -> Caveats:
    """An unknown caveat is refused: ignoring it would allow more than the issuer meant."""
    if type(value) is not dict:
        raise CapabilityRefused("caveats: expected an object")
    fields: dict[str, Any] = {}
    for name, content in value.items():
        if name in ("not_before", "not_after"):
            fields[name] = nanoseconds(content)
        elif name == "max_uses":
            fields[name] = u64(content) or None
        elif name == "ip":
            fields[name] = _networks(content)
        else:
            raise CapabilityRefused(f"unknown caveat {str(name)[:32]!r}")
        if fields[name] is None:
            raise CapabilityRefused(f"caveat {name} is malformed")
    return Caveats(**fields)


def _networks(content: object) -> tuple[Network, ...] | None:
    texts = content if type(content) is list else [content]
    if not all(type(text) is str and _CIDR(text) for text in texts):
        return None
    try:
        return tuple(ipaddress.ip_network(str(text), strict=False) for text in texts)
    except ValueError:
        return None


def parse_chain(value: object) -> tuple[Token, ...]:
    if type(value) is not list or not 1 <= len(value) <= MAX_TOKENS:
        raise CapabilityRefused(f"capability: expected a chain of 1-{MAX_TOKENS} tokens")
    try:
        size = len(orjson.dumps(value))
    except orjson.JSONEncodeError:
        raise CapabilityRefused("capability: expected JSON") from None
    if size > MAX_CHAIN_OCTETS:
        raise CapabilityRefused(f"capability: expected at most {MAX_CHAIN_OCTETS} octets")
    return tuple(map(parse_token, value))


def check_chain(
    value: object, *, owner: str, author: str, kind: int, now_ns: int, ip: str | None
) -> Grant:
    """The grant that lets `author` write an event of `kind` now, or CapabilityRefused.

    `ip` is the writer's address, or None if the transport has none.
    """
    tokens = parse_chain(value)
    _check_links(tokens, owner, author)
    needed = write_capability(kind)
    if not covers(tokens[-1].capability, needed):
        raise CapabilityRefused(f"expected a capability that covers {needed}")
    address = _address(ip)
    for token in tokens:
        _check_caveats(token.caveats, now_ns, address)
    for token in tokens:  # last, because signatures are the slowest check
        if not keys.is_signed(token.issuer, bytes.fromhex(token.id), token.sig):
            raise CapabilityRefused("a token's signature does not match its issuer")
    return Grant(tokens)


def _check_links(tokens: tuple[Token, ...], owner: str, author: str) -> None:
    if tokens[0].issuer != owner:
        raise CapabilityRefused("the first token is not issued by the relay's owner")
    if tokens[-1].subject != author:
        raise CapabilityRefused("the last token's subject is not the event's author")
    if len({token.id for token in tokens}) < len(tokens):
        raise CapabilityRefused("a token stands twice in the chain")
    for parent, child in pairwise(tokens):
        if parent.subject != child.issuer:
            raise CapabilityRefused("a token is not issued by the subject of the one before")
        if not covers(parent.capability, child.capability):
            raise CapabilityRefused("a token is wider than the one before")


def _check_caveats(caveats: Caveats, now_ns: int, address: Address | None) -> None:
    if caveats.not_before is not None and now_ns < caveats.not_before:
        raise CapabilityRefused("a token is not valid yet")
    if caveats.not_after is not None and now_ns > caveats.not_after:
        raise CapabilityRefused("a token has expired")
    if caveats.ip is not None and not _is_within(address, caveats.ip):
        raise CapabilityRefused("a token does not allow this address")


def _is_within(address: Address | None, networks: tuple[Network, ...]) -> bool:
    return address is not None and any(address in network for network in networks)


def _address(ip: str | None) -> Address | None:
    try:
        address = None if ip is None else ipaddress.ip_address(ip)
    except ValueError:
        return None
    # A server that listens for both versions sees ::ffff:192.0.2.1 for 192.0.2.1.
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
