"""The checks that refuse an event, apart from its price: a list of small checks, each with its
reason.

Cheap checks come first. The operator's rules come from the store, and are cached in memory.
Requests to vanish are looked up in the store, once there has been any.
"""

from farthing.context import Agent
from farthing.nostr.events import Event
from farthing.nostr.kinds import Kind
from farthing.nostr.messages import Prefix, Refused
from farthing.relay.moderation import not_banned
from farthing.relay.removal import not_vanished

# NIP-59 dates gift wraps up to two days back, to hide when they were made.
GIFT_WRAP_BACKDATING = 2 * 24 * 3600


def not_too_large(agent: Agent, event: Event) -> None:
    settings = agent.settings
    tags, length = len(event.tags), len(event.content)
    if tags > (most := settings.max_event_tags):
        raise Refused(Prefix.INVALID, f"expected at most {most} tags, got {tags}")
    if length > (most := settings.max_content_length):
        raise Refused(
            Prefix.INVALID, f"expected at most {most} characters of content, got {length}"
        )


def not_only_for_authentication(_: Agent, event: Event) -> None:
    if event.kind == Kind.CLIENT_AUTH:
        raise Refused(Prefix.INVALID, "kind 22242 goes with AUTH and is never published (NIP-42)")


def created_when_allowed(agent: Agent, event: Event) -> None:
    settings = agent.settings
    if event.created_at > agent.now + settings.created_at_future:
        raise Refused(Prefix.INVALID, "created_at is too far in the future")
    past = settings.created_at_past
    if past and event.kind == Kind.GIFT_WRAP:
        past = max(past, GIFT_WRAP_BACKDATING)
    if past and event.created_at < agent.now - past:
        raise Refused(Prefix.INVALID, "created_at is too far in the past")


def not_expired(agent: Agent, event: Event) -> None:
    if event.expiration is not None and event.expiration <= agent.now:
        raise Refused(Prefix.INVALID, "event has expired (NIP-40)")


def not_blocked(agent: Agent, event: Event) -> None:
    if event.pubkey in agent.settings.blocked_pubkeys:
        raise Refused(Prefix.BLOCKED, "author is blocked here")


POLICIES = (
    not_too_large,
    not_only_for_authentication,
    created_when_allowed,
    not_expired,
    not_blocked,
    not_banned,
    not_vanished,
)


def check_policies(agent: Agent, event: Event) -> None:
    for policy in POLICIES:
        policy(agent, event)
