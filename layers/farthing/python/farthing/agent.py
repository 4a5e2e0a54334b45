"""The agent: its settings, what it keeps, and its ways to the outside, put together once.

Verbs take it as their first argument. In Lambda it is made from the environment at the first call;
the local server and the tests install their own.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from farthing.ilp.known_peers import KnownPeers
from farthing.ilp.outbound import NoOutbound, Outbound
from farthing.ilp.pace import Pace
from farthing.relay.connections import Connections
from farthing.relay.haste import Haste
from farthing.relay.meter import Meter, NoMeter
from farthing.relay.relays import NoRelays, Relays
from farthing.settings import Settings
from farthing.store.changes import ChangeLog
from farthing.store.credits import CreditLimits
from farthing.store.events import EventStore
from farthing.store.ledger import Ledger
from farthing.store.planner import Reader
from farthing.store.routes import RoutingTable
from farthing.store.sessions import Sessions
from farthing.store.settlements import Settlements
from farthing.store.syncs import Syncs
from farthing.store.table import Engine


@dataclass(frozen=True)
class Agent:
    settings: Settings
    engine: Engine
    connections: Connections
    outbound: Outbound = field(default_factory=NoOutbound)
    meter: Meter = field(default_factory=NoMeter)
    relays: Relays = field(default_factory=NoRelays)
    clock: Callable[[], float] = time.time
    # Whether messages of a connection are handled in the order in which they were sent.
    in_order: bool = False
    # Whether nobody else serves the same peers: what this process counts is then all there is.
    alone: bool = False

    @property
    def now(self) -> int:
        return int(self.clock())

    @property
    def now_ms(self) -> int:
        return int(self.clock() * 1000)

    @cached_property
    def events(self) -> EventStore:
        return EventStore(self.engine, clock=self.clock)

    @cached_property
    def reader(self) -> Reader:
        return Reader(self.engine, self.events, self.settings.max_scan)

    @cached_property
    def ledger(self) -> Ledger:
        return Ledger(self.engine)

    @cached_property
    def known_peers(self) -> KnownPeers:
        return KnownPeers(self.ledger, self.trust, self.settings, self.clock)

    @cached_property
    def pace(self) -> Pace:
        return Pace()

    @cached_property
    def haste(self) -> Haste:
        return Haste()

    @cached_property
    def trust(self) -> CreditLimits:
        return CreditLimits(self.engine)

    @cached_property
    def changes(self) -> ChangeLog:
        return ChangeLog(self.engine)

    @cached_property
    def settlements(self) -> Settlements:
        return Settlements(self.engine)

    @cached_property
    def routes(self) -> RoutingTable:
        seconds = self.settings.route_cache_seconds
        return RoutingTable(self.engine, cache_seconds=seconds, clock=self.clock)

    @cached_property
    def syncs(self) -> Syncs:
        return Syncs(self.engine, self.settings.sync_seconds, in_order=self.in_order)

    @cached_property
    def sessions(self) -> Sessions:
        return Sessions(self.engine, self.settings.connection_seconds, in_order=self.in_order)
