"""What every quote says, whatever it is for: the asset, where to pay, and until when."""

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
    """Where to pay, and until when the price is meant to hold."""
    settings = agent.settings
    expires = datetime.fromtimestamp(agent.now + settings.quote_seconds, UTC)
    return {
        "destination": settings.own_ilp_address,
        "endpoint": settings.ilp_url,
        "pubkey": settings.pubkey,
        "expires_at": expires.isoformat().replace("+00:00", "Z"),
    }
