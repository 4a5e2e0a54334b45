"""The relay information document (NIP-11), made from the current settings."""

from typing import Any

from farthing import __version__
from farthing.ilp.purse import PURSE_SEGMENT
from farthing.nostr.messages import MAX_SUBSCRIPTION_ID
from farthing.settings import Settings

SUPPORTED_NIPS = (1, 9, 11, 40, 42, 45, 62, 70, 77, 86, 98)
SEARCH_NIP = 50
# NIP-CF requires "CF" in the list. Clients that expect only numbers then refuse the whole document.
CHANGES_FEED = "CF"


def relay_information(settings: Settings, *, searches: bool = False) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": settings.name,
        "description": settings.description,
        "pubkey": settings.pubkey,
        "self": settings.pubkey,
        "contact": settings.contact,
        "icon": settings.icon,
        "supported_nips": supported_nips(settings, searches=searches),
        # Our own field: the changes feed, for clients that read this field and not the list.
        "changes_feed": True,
        "software": "farthing",
        "version": __version__,
        "limitation": _limitation(settings),
        "payments_url": settings.purses_url,
        "fees": _fees(settings),
        # Our own field: all data that a payer needs, except its own key and a token.
        "ilp": {
            "address": settings.own_ilp_address,
            "endpoint": settings.ilp_url,
            "asset_code": settings.asset_code,
            "asset_scale": settings.asset_scale,
            "quotes": f"{settings.http_url}/v1/quotes",
            # The page, the payment pointer and the address of a purse: these, followed by the key.
            "purses": {"url": settings.purses_url, "address": purses_address(settings)},
        },
    }
    if settings.aether:
        # Imported here because the import is slow.
        from farthing.relay.aether.information import aether_information

        document["aether"] = aether_information(settings)
    if settings.is_free:
        del document["payments_url"]
    if not document["fees"]:
        del document["fees"]
    return {name: value for name, value in document.items() if value != ""}


def purses_address(settings: Settings) -> str:
    return f"{settings.own_ilp_address}.{PURSE_SEGMENT}"


def _fees(settings: Settings) -> dict[str, Any]:
    """The prices of writing and of paid subscriptions, each only if it is sold."""
    fees: dict[str, Any] = {} if settings.is_free else settings.tariff.as_fees()
    if settings.subscription_fees.models:
        fees |= settings.subscription_fees.as_fees()
    return fees


def supported_nips(settings: Settings, *, searches: bool) -> list[int | str]:
    numbers = sorted([*SUPPORTED_NIPS, *([SEARCH_NIP] if searches else [])])
    return [*numbers, *([CHANGES_FEED] if settings.list_changes_feed else [])]


def _limitation(settings: Settings) -> dict[str, Any]:
    limits: dict[str, Any] = {
        "max_message_length": settings.max_message_length,
        "max_subscriptions": settings.max_subscriptions,
        "max_filters": settings.max_filters,
        "max_limit": settings.max_limit,
        "default_limit": settings.default_limit,
        "max_subid_length": MAX_SUBSCRIPTION_ID,
        "max_event_tags": settings.max_event_tags,
        "max_content_length": settings.max_content_length,
        "created_at_upper_limit": settings.created_at_future,
        "auth_required": False,
        "payment_required": not settings.is_free,
        "restricted_writes": not settings.is_free,
    }
    if settings.created_at_past:
        limits["created_at_lower_limit"] = settings.created_at_past
    return limits
