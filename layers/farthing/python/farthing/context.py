"""The agent: its settings, its store and its ports, assembled once.

Every verb takes the agent as its first argument. In Lambda the first call makes it from the
environment; the local server and the tests install their own.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from farthing.nostr.events import Event
from farthing.ports.broadcast_wakes import BroadcastWakes, NoBroadcastWakes
from farthing.ports.connections import Connections
from farthing.ports.figures import Figures, NoFigures
from farthing.ports.meter import Meter, NoMeter
from farthing.ports.outbound import NoOutbound, Outbound
from farthing.ports.recipients import NoRecipientQueue, RecipientQueue
from farthing.ports.relays import NoRelays, Relays
from farthing.ports.search import NoSearch, Search
from farthing.ports.slow_lane import NoSlowLane, SlowLane
from farthing.ports.wakes import NoWakes, Wakes
from farthing.settings import Settings
from farthing.store.answers import ReaderProcesses
from farthing.store.changes import ChangeLog, Numberer
from farthing.store.events import EventStore
from farthing.store.reader import Reader
from farthing.store.recall import Recall
from farthing.store.sessions import Sessions
from farthing.store.spaces import NOSTR, E, Space
from farthing.store.subscriptions import Subscriptions
from farthing.store.table import Engine

# Each is imported where it is used, because every import makes a function's cold start slower.
if TYPE_CHECKING:
    from farthing.store.credits import CreditLimits
    from farthing.store.cursors import Cursors
    from farthing.store.feeds import Feeds
    from farthing.store.ledger import Ledger
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
    """The stored events of one space: the events, their index, and their numbers."""

    events: EventStore[E]
    reader: Reader[E]
    changes: ChangeLog


@dataclass(frozen=True, eq=False)
class Agent:
    settings: Settings
    engine: Engine
    connections: Connections
    outbound: Outbound = field(default_factory=NoOutbound)
    meter: Meter = field(default_factory=NoMeter)
    relays: Relays = field(default_factory=NoRelays)
    wakes: Wakes = field(default_factory=NoWakes)
    broadcast_wakes: BroadcastWakes = field(default_factory=NoBroadcastWakes)
    recipients: RecipientQueue = field(default_factory=NoRecipientQueue)
    search: Search = field(default_factory=NoSearch)
    figures: Figures = field(default_factory=NoFigures)
    clock: Callable[[], float] = time.time
    # Waits before another attempt. On one machine, other handlers run meanwhile.
    sleep: Callable[[float], None] = time.sleep
    # The queue in which large requests wait for their turn.
    slow_lane: SlowLane = field(default_factory=NoSlowLane)
    # Numbers events in the commit that stores them: on one machine only.
    numbering: Numberer | None = None
    # The cache of recent reads, if the engine reports every write.
    recall: Recall | None = None
    # The number of the last change in the stream of events: on one machine only.
    stream_end: Callable[[], int] = lambda: 0
    # Other processes that can read the store.
    reader_processes: ReaderProcesses | None = None
    # Whether messages of a connection are handled in the order in which they were sent.
    in_order: bool = False
    # Whether this is the only process that serves the peers, so that its own counts are complete.
    alone: bool = False

    # Caches and counters of the packages above this one, by the function that makes each.
    _parts: dict[Callable[..., Any], Any] = field(default_factory=dict, repr=False)

    def part(self, make: Callable[["Agent"], T]) -> T:
        """The result of `make` for this agent, made once. So a package can keep a cache or a
        counter for each agent, and this module does not know the package."""
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
        """The time in nanoseconds, with the precision of the clock."""
        return int(self.clock() * 1_000_000) * 1000

    @cached_property
    def _kept(self) -> dict[Space[Any], "Kept[Any]"]:
        return {}

    def kept(self, space: Space[E]) -> "Kept[E]":
        """The stored events of a space, made once."""
        found: Kept[E] | None = self._kept.get(space)
        if found is None:
            events = EventStore(self.engine, space, clock=self.clock, recall=self.recall)
            processes = self.reader_processes if space is NOSTR else None
            reader = Reader(self.engine, events, self.settings.max_scan, processes)
            made = Kept(events, reader, ChangeLog(self.engine, space))
            found = self._kept.setdefault(space, made)
        return found

    @property
    def events(self) -> EventStore[Event]:
        """The stored Nostr events."""
        return self.kept(NOSTR).events

    @property
    def reader(self) -> Reader[Event]:
        return self.kept(NOSTR).reader

    @property
    def changes(self) -> ChangeLog:
        return self.kept(NOSTR).changes

    @cached_property
    def ledger(self) -> "Ledger":
        from farthing.store.ledger import Ledger

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
        most = self.settings.max_parsed_bytes // 2
        if self.alone and self.in_order:
            from farthing.store.live_subscriptions import LiveSubscriptions

            return LiveSubscriptions(self.engine, most, self.stream_end)
        return Subscriptions(
            self.engine, self.settings.connection_seconds, most, stream_end=self.stream_end
        )

    @cached_property
    def cursors(self) -> "Cursors":
        from farthing.store.cursors import Cursors

        return Cursors(self.engine, self.settings.connection_seconds)
