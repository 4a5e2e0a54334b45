"""The lease of a delivery: one caller at a time serves a subscription, and commits its state.

A commit fails if another caller has taken the lease over, or if the subscription has ended, so no
event is charged twice.
"""

from collections.abc import Sequence
from secrets import token_hex
from typing import Final, NamedTuple

from farthing.btp_nips.identity import Owner
from farthing.context import Agent
from farthing.ports.meter import Metric
from farthing.store.paid_records import PaidSubscription
from farthing.store.table import TransactionCancelled, TransactWrite

LEASE_MS: Final = 60_000
_RENEW_MS: Final = 25_000  # a lease with less time left is renewed before the next packet


class LeaseLost(Exception):
    """Another caller holds the lease by now, or the subscription has ended."""


class Lease(NamedTuple):
    subscription: PaidSubscription
    holder: str


def take_lease(agent: Agent, owner: Owner, subscription_id: str) -> Lease | None:
    """None if another caller holds the lease, or if there is no such subscription."""
    holder, now_ms = token_hex(8), agent.now_ms
    found = agent.paid_subscriptions.take_lease(
        owner, subscription_id, holder, now_ms, now_ms + LEASE_MS
    )
    if found is not None:
        return Lease(found, holder)
    standing = agent.paid_subscriptions.get(owner, subscription_id, agent.now)
    if standing is not None:
        # If the holder has crashed, the sweep must continue when the lease is over.
        agent.paid_subscriptions.wake_at(standing, max(standing.lease_ms, now_ms) + 1)
    return None


class LeaseHolder:
    """A caller that holds the lease. `_old` is the committed state, `_new` the state to commit."""

    def __init__(self, agent: Agent, lease: Lease) -> None:
        self._agent = agent
        self._store = agent.paid_subscriptions
        self._old = self._new = lease.subscription
        self._holder = lease.holder
        self._lease_ms = agent.now_ms + LEASE_MS
        self._events = 0  # events that are not committed yet

    def _commit(self, *, goes_on: bool = False) -> None:
        """Write the new state, and keep the lease or release it. Raises LeaseLost."""
        if self._new != self._old:
            self._write(self._next_lease() if goes_on else 0)
        elif not goes_on:
            self._leave()

    def _transact(self, after: PaidSubscription, along: Sequence[TransactWrite]) -> None:
        """Commit together with other writes. Raises LeaseLost if one of them is refused."""
        lease_ms = self._next_lease()
        change = self._store.change(self._old, after, holder=self._holder, lease_ms=lease_ms)
        try:
            self._agent.engine.transact([change, *along])
        except TransactionCancelled:
            # The purse has made another payment meanwhile, or the lease is lost.
            self._leave()
            self._agent.wakes.wake(after.owner, after.id)
            raise LeaseLost from None
        self._old = self._new = after

    def _keep_lease(self) -> None:
        """Renew the lease if its time does not suffice to send a packet and commit it."""
        left = self._lease_ms - self._agent.now_ms
        if left < max(_RENEW_MS, 2 * self._agent.settings.subscription_packet_ms):
            self._write(self._next_lease())

    def _leave(self) -> None:
        """Release the lease without another change."""
        self._store.leave(self._old.owner, self._old.id, self._holder)

    def _write(self, lease_ms: int) -> None:
        if not self._store.commit(self._old, self._new, self._holder, lease_ms):
            raise LeaseLost
        drawn = self._new.account.delivered - self._old.account.delivered
        self._old = self._new
        self._events = 0
        if drawn:  # payments to other relays are not our revenue
            self._agent.meter.count(Metric.REVENUE, drawn * self._old.terms.event_fee)

    def _next_lease(self) -> int:
        self._lease_ms = self._agent.now_ms + LEASE_MS
        return self._lease_ms
