"""NIP-86: the relay management API, JSON-RPC in the body of a POST to the relay's own URL.

Pure: what a request and its answer look like. What a method does is decided elsewhere.
"""

from enum import StrEnum
from typing import Any, NamedTuple

from farthing.nostr.events import is_hex64
from farthing.nostr.kinds import MAX_KIND

MEDIA_TYPE = "application/nostr+json+rpc"
_TEXT_MAX = 1000


class Method(StrEnum):
    SUPPORTED_METHODS = "supportedmethods"
    BAN_PUBKEY = "banpubkey"
    UNBAN_PUBKEY = "unbanpubkey"
    LIST_BANNED_PUBKEYS = "listbannedpubkeys"
    ALLOW_PUBKEY = "allowpubkey"
    UNALLOW_PUBKEY = "unallowpubkey"
    LIST_ALLOWED_PUBKEYS = "listallowedpubkeys"
    LIST_EVENTS_NEEDING_MODERATION = "listeventsneedingmoderation"
    ALLOW_EVENT = "allowevent"
    UNALLOW_EVENT = "unallowevent"
    LIST_ALLOWED_EVENTS = "listallowedevents"
    BAN_EVENT = "banevent"
    UNBAN_EVENT = "unbanevent"
    LIST_BANNED_EVENTS = "listbannedevents"
    CHANGE_RELAY_NAME = "changerelayname"
    CHANGE_RELAY_DESCRIPTION = "changerelaydescription"
    CHANGE_RELAY_ICON = "changerelayicon"
    ALLOW_KIND = "allowkind"
    DISALLOW_KIND = "disallowkind"
    LIST_ALLOWED_KINDS = "listallowedkinds"
    LIST_DISALLOWED_KINDS = "listdisallowedkinds"
    BLOCK_IP = "blockip"
    UNBLOCK_IP = "unblockip"
    LIST_BLOCKED_IPS = "listblockedips"


class InvalidCall(ValueError):
    """A call that no method can answer; the message says what was expected."""


class Call(NamedTuple):
    method: Method
    params: list[Any]

    def text(self, index: int, name: str, *, required: bool = True) -> str:
        """A parameter that is text."""
        value = self.params[index] if index < len(self.params) else None
        if value is None and not required:
            return ""
        if type(value) is not str or len(value) > _TEXT_MAX:
            raise InvalidCall(f"expected {name} as text of at most {_TEXT_MAX} characters")
        return value

    def hex64(self, index: int, name: str) -> str:
        value = self.text(index, name)
        if not is_hex64(value):
            raise InvalidCall(f"expected {name} as 64 lowercase hexadecimal digits")
        return value

    def kind(self, index: int) -> int:
        value = self.params[index] if index < len(self.params) else None
        if type(value) is not int or not 0 <= value <= MAX_KIND:
            raise InvalidCall(f"expected a kind from 0 to {MAX_KIND}")
        return value


def parse_call(value: object) -> Call:
    if type(value) is not dict:
        raise InvalidCall("expected a JSON object with method and params")
    method, params = value.get("method"), value.get("params", [])
    if type(method) is not str:
        raise InvalidCall("expected a method as text")
    if type(params) is not list:
        raise InvalidCall("expected params as a list")
    try:
        return Call(Method(method), params)
    except ValueError:
        raise InvalidCall(f"there is no method {method[:40]!r}") from None


def answer(result: object) -> dict[str, Any]:
    return {"result": result}


def failure(message: str) -> dict[str, Any]:
    return {"result": None, "error": message}
