"""The rules that every relay applies to an event before its id and signature are checked."""

from typing import Final

from farthing.aether.errors import ValidationFailed
from farthing.aether.events import Event, Policy
from farthing.aether.invoices import parse_invoice_attachment
from farthing.aether.kinds import MAX_KIND, Kind
from farthing.aether.numbers import SECOND
from farthing.nostr.kinds import Keeping

EPHEMERAL_SECONDS: Final = 60


def standard(now_ns: int, future_seconds: int) -> tuple[Policy, ...]:
    """The policies of Aether's specification, at this moment."""
    return (
        known_kind,
        not_ahead(now_ns, future_seconds),
        fresh_if_ephemeral(now_ns),
        not_expired(now_ns),
        sound_offer,
    )


def known_kind(event: Event) -> None:
    if event.kind > MAX_KIND:
        _refuse(event, f"expected a kind from 0 to {MAX_KIND}, got {event.kind}")


def not_ahead(now_ns: int, future_seconds: int) -> Policy:
    latest = now_ns + future_seconds * SECOND

    def policy(event: Event) -> None:
        if event.created_at > latest:
            _refuse(event, f"created_at is more than {future_seconds} seconds ahead")

    return policy


def fresh_if_ephemeral(now_ns: int) -> Policy:
    """Refuse an old ephemeral event. It may be a replay, and no stored record could show that."""
    earliest = now_ns - EPHEMERAL_SECONDS * SECOND

    def policy(event: Event) -> None:
        if event.keeping is Keeping.EPHEMERAL and event.created_at < earliest:
            _refuse(event, f"ephemeral event is older than {EPHEMERAL_SECONDS} seconds")

    return policy


def not_expired(now_ns: int) -> Policy:
    def policy(event: Event) -> None:
        if event.expires_ns is not None and event.expires_ns <= now_ns:
            _refuse(event, "event has expired")

    return policy


def sound_offer(event: Event) -> None:
    if event.kind == Kind.INVOICE_OFFER:
        try:
            parse_invoice_attachment(event.content)
        except ValidationFailed as error:
            error.event_id = event.id
            raise


def _refuse(event: Event, reason: str) -> None:
    raise ValidationFailed(reason, event_id=event.id)
