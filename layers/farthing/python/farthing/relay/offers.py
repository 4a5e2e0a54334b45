"""The common part of every quote: the asset, the address for the payment, and the end of
validity."""

from datetime import UTC, datetime
from typing import Any

from farthing.context import Agent


def offer(agent: Agent) -> dict[str, Any]:
    settings = agent.settings
    return {
        "asset_code": settings.asset_code,
        "asset_scale": settings.asset_scale,
        **where_to_pay(agent),
    }


def where_to_pay(agent: Agent) -> dict[str, Any]:
    """The address for the payment, and the time until which the price is valid."""
    settings = agent.settings
    expires = datetime.fromtimestamp(agent.now + settings.quote_seconds, UTC)
    return {
        "destination": settings.own_ilp_address,
        "endpoint": settings.ilp_url,
        "pubkey": settings.pubkey,
        "expires_at": expires.isoformat().replace("+00:00", "Z"),
    }
