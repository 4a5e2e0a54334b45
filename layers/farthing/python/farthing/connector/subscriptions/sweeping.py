"""The sweep of subscriptions: it ends those whose time is over, and wakes those that wait for
another attempt."""

from itertools import islice

from farthing.btp_nips.lifecycle import Ending
from farthing.connector.subscriptions.ending import end
from farthing.context import Agent
from farthing.store.paid_records import PaidSubscription

_AT_ONCE = 100


def sweep_subscriptions(agent: Agent) -> int:
    """Handle every subscription that is due. Returns how many have ended."""
    ended = 0
    dues = iter(agent.paid_subscriptions.due_until(agent.now_ms))
    while some := list(islice(dues, _AT_ONCE)):
        found = agent.paid_subscriptions.get_many([(due.owner, due.id) for due in some], agent.now)
        ended += sum(_sweep(agent, each) for each in found.values())
        agent.paid_subscriptions.forget_due(some)
    return ended


def _sweep(agent: Agent, subscription: PaidSubscription) -> bool:
    has_ended = False
    if not subscription.state.has_ended and agent.now >= subscription.expires_at:
        has_ended = end(agent, subscription, Ending.TTL) is not None
    if subscription.has_work:
        agent.wakes.wake(subscription.owner, subscription.id)
    return has_ended


def wake_all(agent: Agent) -> int:
    """Wake every subscription by push, and every one that is passed on. Needed after a start: wakes
    are lost when the process stops."""
    woken = 0
    for each in agent.paid_subscriptions.all(agent.now):
        if each.has_work:
            if each.lease_ms and agent.alone:
                agent.paid_subscriptions.break_lease(each)  # its holder has ended with the process
            agent.wakes.wake(each.owner, each.id)
            woken += 1
    return woken
