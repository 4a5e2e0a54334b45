"""Aether for clients without an Aether socket: the bodies of the HTTP interface, and the messages
of Nostr clients that ask for Aether events."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from farthing.aether.errors import AetherError, Code, InvalidMessage
from farthing.aether.events import Event
from farthing.aether.filters import Filter, InvalidFilter, parse_filter
from farthing.aether.messages import MAX_SUB_ID, VERSION, Format, Publish, parse_filters

STATUS: Final = {
    Code.INVALID_MESSAGE: 400,
    Code.INVALID_EVENT: 400,
    Code.VALIDATION_FAILED: 400,
    Code.PAYMENT_REQUIRED: 402,
    Code.CAPABILITY_REFUSED: 403,
    Code.SUBSCRIPTION_NOT_FOUND: 404,
    Code.TOO_LARGE: 413,
    Code.RATE_LIMITED: 429,
    Code.INTERNAL: 500,
}
SUPERSEDED: Final = 409  # also the status for a subscription id that is taken

# The key by which a Nostr filter asks for Aether events.
MARK: Final = "aether"


def is_aether_event(value: object) -> bool:
    """Whether an event is an Aether event, at an interface that also accepts Nostr events."""
    return isinstance(value, dict) and "event_id" in value


def parse_post_event(value: object) -> Publish | None:
    """The body of `POST /v1/events`: an event, or an event with a capability. None if it is a Nostr
    event."""
    if is_aether_event(value):
        return Publish(value)
    if isinstance(value, dict) and is_aether_event(value.get("event")):
        return Publish(value["event"], value.get("capability"))
    return None


@dataclass(frozen=True, slots=True)
class PostSubscription:
    filters: tuple[Filter, ...]
    subscription_id: str | None = None  # None: the relay chooses


def parse_post_subscription(value: object, *, max_filters: int) -> PostSubscription:
    if type(value) is not dict:
        raise InvalidMessage("expected an object with filters")
    chosen = value.get("subscription_id")
    if chosen is not None and (type(chosen) is not str or not 1 <= len(chosen) <= MAX_SUB_ID):
        raise InvalidMessage(f"subscription_id: expected text of 1-{MAX_SUB_ID} characters")
    return PostSubscription(parse_filters(value.get("filters"), max_filters), chosen)


def subscription_id(randomness: bytes) -> str:
    """The id that the relay chooses. Everyone who knows the id can read the stream, so the id must
    not be guessable."""
    if len(randomness) < 16:
        raise ValueError("expected at least 128 random bits")
    return f"sub-{randomness.hex()}"


def accepted(event_id: str, message: str) -> dict[str, object]:
    return {"accepted": True, "event_id": event_id, "message": message}


def refused(problem: AetherError) -> dict[str, object]:
    return {"accepted": False, "error": problem.code.value, "message": str(problem)}


def information(*, pubkey: str, noise_pubkey: str | None, ws: str) -> dict[str, object]:
    """The field `aether` of the relay information document."""
    return {
        "version": VERSION,
        "pubkey": pubkey,
        "noise_pubkey": noise_pubkey,
        "formats": [each.value for each in Format],
        "ws": ws,
    }


def parse_nostr_filters(values: Sequence[object]) -> tuple[Filter, ...] | None:
    """The filters of a REQ that asks for Aether events, None if it asks for Nostr events."""
    marked = [isinstance(value, dict) and MARK in value for value in values]
    if not any(marked):
        return None
    if not all(marked):
        raise InvalidFilter(f"expected {MARK} in all filters of a REQ, or in none")
    return tuple(_unmarked(value) for value in values if isinstance(value, dict))


def _unmarked(value: Mapping[str, Any]) -> Filter:
    if value[MARK] is not True:
        raise InvalidFilter(f"{MARK}: expected true")
    return parse_filter({key: content for key, content in value.items() if key != MARK})


def for_nostr(event: Event) -> dict[str, object]:
    """The event for a Nostr client that asked for it: its own fields, and `id` beside
    `event_id`."""
    return {"id": event.id, **event.as_dict()}
