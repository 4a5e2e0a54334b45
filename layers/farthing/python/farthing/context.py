"""The agent: its settings, what it keeps, and its ways to the outside, put together once.

Verbs take it as their first argument. In Lambda it is made from the environment at the first call;
the local server and the tests install their own.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from farthing.nostr.events import Event
from farthing.ports.connections import Connections
from farthing.ports.meter import Meter, NoMeter
from farthing.ports.outbound import NoOutbound, Outbound
from farthing.ports.recipients import NoRecipientQueue, RecipientQueue
from farthing.ports.relays import NoRelays, Relays
from farthing.ports.search import NoSearch, Search
from farthing.ports.slow_lane import OpenRoad, SlowLane
from farthing.ports.wakes import NoWakes, Wakes
from farthing.settings import Settings
from farthing.store.changes import ChangeLog, Numberer
from farthing.store.events import EventStore
from farthing.store.ledger import Ledger
from farthing.store.planner import Reader
from farthing.store.sessions import Sessions
from farthing.store.spaces import NOSTR, E, Space
from farthing.store.subscriptions import Subscriptions
from farthing.store.table import Engine

# Each is loaded by whoever uses it: a function's cold start pays for every import.
if TYPE_CHECKING:
    from farthing.store.credits import CreditLimits
    from farthing.store.cursors import Cursors
    from farthing.store.feeds import Feeds
    from farthing.store.outbox import Outbox
    from farthing.store.outgoing_subscriptions import OutgoingSubscriptions
    from farthing.store.paid_subscriptions import PaidSubscriptions
    from farthing.store.purses import Purses
    from farthing.store.routes import RoutingTable
    from farthing.store.settlements import Settlements
    from farthing.store.subscription_funds import SubscriptionFunds
    from farthing.store.syncs import Syncs

T = TypeVar("T")


@dataclass(frozen=True)
class Kept(Generic[E]):
    """What is kept of one space: its events, the way to find them, and their numbers."""

    events: EventStore[E]
    reader: Reader[E]
    changes: ChangeLog


@dataclass(frozen=True)
class Agent:
    settings: Settings
    engine: Engine
    connections: Connections
    outbound: Outbound = field(default_factory=NoOutbound)
    meter: Meter = field(default_factory=NoMeter)
    relays: Relays = field(default_factory=NoRelays)
    wakes: Wakes = field(default_factory=NoWakes)
    recipients: RecipientQueue = field(default_factory=NoRecipientQueue)
    search: Search = field(default_factory=NoSearch)
    clock: Callable[[], float] = time.time
    # Waits before another attempt. On one machine, other handlers run meanwhile.
    sleep: Callable[[float], None] = time.sleep
    # Where large requests wait for their turn.
    slow_lane: SlowLane = field(default_factory=OpenRoad)
    # Where events get their numbers in the commit that stores them.
    numbering: Numberer | None = None
    # Whether messages of a connection are handled in the order in which they were sent.
    in_order: bool = False
    # Whether nobody else serves the same peers: what this process counts is then all there is.
    alone: bool = False

    # What packages above this one keep for an agent, by the function that makes it.
    _parts: dict[Callable[..., Any], Any] = field(default_factory=dict, repr=False)

    def part(self, make: Callable[["Agent"], T]) -> T:
        """What `make` returns for this agent, made once. So a package keeps a cache or a counter
        for each agent without this module knowing of the package."""
        found = self._parts.get(make)
        if found is None:
            found = self._parts.setdefault(make, make(self))
        part: T = found
        return part

    @property
    def now(self) -> int:
        return int(self.clock())

    @property
    def now_ms(self) -> int:
        return int(self.clock() * 1000)

    @property
    def now_ns(self) -> int:
        """Nanoseconds, as exact as the clock is."""
        return int(self.clock() * 1_000_000) * 1000

    @cached_property
    def _kept(self) -> dict[Space[Any], "Kept[Any]"]:
        return {}

    def kept(self, space: Space[E]) -> "Kept[E]":
        """The events of a space, made once."""
        found: Kept[E] | None = self._kept.get(space)
        if found is None:
            events = EventStore(self.engine, space, clock=self.clock)
            reader = Reader(self.engine, events, self.settings.max_scan)
            made = Kept(events, reader, ChangeLog(self.engine, space))
            found = self._kept.setdefault(space, made)
        return found

    @property
    def events(self) -> EventStore[Event]:
        """The Nostr events, as in `kept`."""
        return self.kept(NOSTR).events

    @property
    def reader(self) -> Reader[Event]:
        return self.kept(NOSTR).reader

    @property
    def changes(self) -> ChangeLog:
        return self.kept(NOSTR).changes

    @cached_property
    def ledger(self) -> Ledger:
        return Ledger(self.engine)

    @cached_property
    def purses(self) -> "Purses":
        from farthing.store.purses import Purses

        return Purses(self.engine)

    @cached_property
    def paid_subscriptions(self) -> "PaidSubscriptions":
        from farthing.store.paid_subscriptions import PaidSubscriptions

        return PaidSubscriptions(self.engine)

    @cached_property
    def outgoing_subscriptions(self) -> "OutgoingSubscriptions":
        from farthing.store.outgoing_subscriptions import OutgoingSubscriptions

        return OutgoingSubscriptions(self.engine)

    @cached_property
    def subscription_funds(self) -> "SubscriptionFunds":
        from farthing.store.subscription_funds import SubscriptionFunds

        return SubscriptionFunds(self.engine, self.purses)

    @cached_property
    def trust(self) -> "CreditLimits":
        from farthing.store.credits import CreditLimits

        return CreditLimits(self.engine)

    @cached_property
    def settlements(self) -> "Settlements":
        from farthing.store.settlements import Settlements

        return Settlements(self.engine)

    @cached_property
    def outbox(self) -> "Outbox":
        from farthing.store.outbox import Outbox

        return Outbox(self.engine)

    @cached_property
    def feeds(self) -> "Feeds":
        from farthing.store.feeds import Feeds

        return Feeds(self.engine)

    @cached_property
    def routes(self) -> "RoutingTable":
        from farthing.store.routes import RoutingTable

        seconds = self.settings.route_cache_seconds
        return RoutingTable(self.engine, cache_seconds=seconds, clock=self.clock)

    @cached_property
    def syncs(self) -> "Syncs":
        from farthing.store.syncs import Syncs

        return Syncs(self.engine, self.settings.sync_seconds, in_order=self.in_order)

    @cached_property
    def sessions(self) -> Sessions:
        return Sessions(self.engine, self.subscriptions, self.settings.connection_seconds)

    @cached_property
    def subscriptions(self) -> Subscriptions:
        return Subscriptions(
            self.engine,
            self.settings.connection_seconds,
            self.settings.max_parsed_bytes,
            in_order=self.in_order,
        )

    @cached_property
    def cursors(self) -> "Cursors":
        from farthing.store.cursors import Cursors

        return Cursors(self.engine, self.settings.connection_seconds)
