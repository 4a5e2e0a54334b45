"""Subscriptions by HTTP, and reading the log for them. Ephemeral events are not in the log, so
streams never have them."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, Final

from farthing.aether.errors import AetherError, Code, InvalidMessage
from farthing.aether.filters import Filter, parse_filter
from farthing.aether.gateway import parse_post_subscription, subscription_id
from farthing.aether.messages import MAX_SUB_ID
from farthing.context import Agent
from farthing.ports.hosts import client_network
from farthing.relay.aether.subscribe import check_values
from farthing.store.changes import Change
from farthing.store.http_subscriptions import HttpSubscription, HttpSubscriptions
from farthing.store.spaces import AETHER
from farthing.store.table import MAX_BATCH_GET

# The limits of one answer: log entries read, and characters of events.
_MOST_ENTRIES: Final = 1000
_MOST_CHARACTERS: Final = 1_000_000


class SubscriptionTaken(InvalidMessage):
    """Another subscription has the requested id."""


class TooManySubscriptions(AetherError):
    """The address has reached its limit of open subscriptions."""

    code: ClassVar[Code] = Code.RATE_LIMITED


class SubscriptionNotFound(AetherError):
    code: ClassVar[Code] = Code.SUBSCRIPTION_NOT_FOUND


@dataclass(frozen=True, slots=True)
class Batch:
    """A part of the log after some number."""

    events: Sequence[tuple[int, str]]  # numbers and JSON
    end: int  # number up to which the log was read
    is_last: bool  # whether the log ends at that number


def open_subscription(agent: Agent, body: object, *, ip: str | None) -> str:
    """The id of a new subscription, which begins with the next event."""
    wanted = parse_post_subscription(body, max_filters=agent.settings.max_filters)
    check_values(agent, wanted.filters)
    opener = "unknown" if ip is None else client_network(ip)
    most = agent.settings.aether_max_subscriptions
    if agent.part(_subscriptions).count(opener, most) >= most:
        raise TooManySubscriptions(f"expected at most {most} open subscriptions of one address")
    chosen = wanted.subscription_id or subscription_id(secrets.token_bytes(16))
    filters = [filter.as_dict() for filter in wanted.filters]
    opened = HttpSubscription(chosen, filters, agent.kept(AETHER).changes.last_number(), opener)
    if not agent.part(_subscriptions).open(opened, agent.now):
        raise SubscriptionTaken("subscription_id is taken")
    return chosen


def close_subscription(agent: Agent, id: str) -> None:
    if not _may_exist(id) or not agent.part(_subscriptions).close(id, agent.now):
        raise SubscriptionNotFound("no such subscription")


def find_subscription(agent: Agent, id: str) -> HttpSubscription:
    found = agent.part(_subscriptions).read(id, agent.now) if _may_exist(id) else None
    if found is None:
        raise SubscriptionNotFound("no such subscription")
    return found


def _may_exist(id: str) -> bool:
    """Whether a subscription can have this id. A longer one is no key of the store either."""
    return 1 <= len(id) <= MAX_SUB_ID


def filters_of(subscription: HttpSubscription) -> tuple[Filter, ...]:
    return tuple(map(parse_filter, subscription.filters))


def _subscriptions(agent: Agent) -> HttpSubscriptions:
    return HttpSubscriptions(agent.engine, agent.settings.aether_subscription_seconds)


def read_log(
    agent: Agent, filters: Sequence[Filter], after: int, most_characters: int | None = None
) -> Batch:
    """The matching events, in the order of their numbers. Events that were replaced or have expired
    meanwhile are left out."""
    log = agent.kept(AETHER).changes
    last = log.last_number()
    if after >= last:
        return Batch((), last, is_last=True)
    entries = list(islice(log.between(after, last), _MOST_ENTRIES))
    wanted = [entry for entry in entries if any(_may_match(each, entry) for each in filters)]
    found: list[tuple[int, str]] = []
    room = most_characters or _MOST_CHARACTERS
    for at in range(0, len(wanted), MAX_BATCH_GET):
        some = wanted[at : at + MAX_BATCH_GET]
        stored = agent.kept(AETHER).events.get_many(entry.id for entry in some)
        for entry in some:
            record = stored.get(entry.id)
            if record is None or not any(each.matches(record.event) for each in filters):
                continue
            if room < len(record.json) and found:
                return Batch(found, entry.number - 1, is_last=False)
            room -= len(record.json)
            found.append((entry.number, record.json))
    end = entries[-1].number if entries else last
    return Batch(found, end, is_last=end == last)


def _may_match(filter: Filter, entry: Change) -> bool:
    """Whether an entry's event may match, judged by the entry alone."""
    return (
        (filter.ids is None or entry.id in filter.ids)
        and (filter.kinds is None or entry.kind in filter.kinds)
        and filter.has_author(entry.pubkey)
    )
