"""The agent's announcements: its kind 10032 with address, endpoint and prices, and its profile.

They are published as any other event of the owner, and again only after a change.
"""

from collections.abc import Sequence

import orjson

from farthing.agent.follows import newest
from farthing.context import Agent
from farthing.nostr.events import Event, sign_event
from farthing.nostr.kinds import Kind


def publish_identity(agent: Agent) -> list[Event]:
    """Publish the announcements that have changed. Returns the published events."""
    settings = agent.settings
    published = [publish_own(agent, Kind.ILP_PEER_INFO, peer_info_tags(agent), _peer_info(agent))]
    if settings.profile:
        published.append(publish_own(agent, Kind.METADATA, [], settings.profile))
    return [event for event in published if event is not None]


def peer_info_tags(agent: Agent) -> list[list[str]]:
    settings = agent.settings
    return [
        ["ilp_address", settings.own_ilp_address],
        ["ilp_endpoint", settings.ilp_url],
        ["fee", str(settings.forward_fee)],
        ["fee_ppm", str(settings.forward_fee_ppm)],
        *settings.tariff.as_tags(),
        *([] if settings.is_free else [["payments_url", settings.purses_url]]),
        *(settings.subscription_fees.as_tags() if settings.subscription_fees.models else ()),
    ]


def _peer_info(agent: Agent) -> str:
    """The same data as JSON in the content, for agents of earlier versions."""
    settings = agent.settings
    return orjson.dumps(
        {
            "ilpAddress": settings.own_ilp_address,
            "btpEndpoint": "",
            "httpEndpoint": settings.ilp_url,
            "assetCode": settings.asset_code,
            "assetScale": settings.asset_scale,
        }
    ).decode()


def publish_own(
    agent: Agent,
    kind: Kind,
    tags: Sequence[Sequence[str]],
    content: str,
    renew_seconds: int | None = None,
) -> Event | None:
    """Publish an event of the owner, unless the current one has the same content. With a limit in
    seconds, an older event is renewed in any case."""
    current = newest(agent, agent.settings.pubkey, kind)
    wanted = tuple(tuple(tag) for tag in tags)
    if current is not None and (current.tags, current.content) == (wanted, content):
        is_fresh = renew_seconds is None or agent.now - current.created_at < renew_seconds
        if is_fresh:
            return None
    # The event must be newer than the one that it replaces, even if the clock was set back.
    created_at = agent.now if current is None else max(agent.now, current.created_at + 1)
    secret = agent.settings.secret
    event = sign_event(secret, kind=kind, content=content, created_at=created_at, tags=wanted)
    agent.events.save(event)
    return event
