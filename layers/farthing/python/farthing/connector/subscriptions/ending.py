"""The end of a subscription. The transaction that ends it also returns the remaining credit to the
owner."""

from dataclasses import replace
from typing import TYPE_CHECKING

from farthing.btp_nips.lifecycle import Ending, check_order
from farthing.context import Agent
from farthing.store.table import Contended, TransactionCancelled, TransactWrite

if TYPE_CHECKING:  # imported with the first paid subscription
    from farthing.store.paid_records import PaidSubscription

_ATTEMPTS = 20


def end_writes(agent: Agent, ended: "PaidSubscription", *, drawn: int = 0) -> list[TransactWrite]:
    """The writes of an end, beside the change of the account. `drawn` is the amount that was just
    refilled."""
    funds = agent.subscription_funds.of(ended.owner)
    moved = agent.subscription_funds.move(
        funds, ended.id, drawn=drawn, returned=ended.returned, time_ms=agent.now_ms
    )
    return [*agent.paid_subscriptions.end(ended, agent.now), *moved]


def end(
    agent: Agent, subscription: "PaidSubscription", ending: Ending, *, asked_at: int | None = None
) -> "PaidSubscription | None":
    """End a subscription now. Returns None if it has ended meanwhile, or if a REQ of its owner has
    taken the reason away.

    `asked_at` is when its owner asked for the end: `Outdated` if a later REQ was taken since."""
    store, current = agent.paid_subscriptions, subscription
    for _ in range(_ATTEMPTS):
        if current.state.has_ended or not _still_holds(agent, current, ending):
            return None
        ended = current.ended(ending, agent.now)
        if asked_at is not None:
            check_order(asked_at, current.current)
            ended = replace(ended, last_timestamp=asked_at)
        writes = [store.change(current, ended), *end_writes(agent, ended)]
        try:
            agent.engine.transact(writes)
        except (TransactionCancelled, Contended):
            found = store.get(current.owner, current.id, agent.now)
            if found is None:
                return None
            current = found
        else:
            if current.is_push:
                store.forget_hints(current)
            return ended
    raise Contended("other processes are changing the subscription")


def _still_holds(agent: Agent, subscription: "PaidSubscription", ending: Ending) -> bool:
    """Whether the reason for an end holds for this state."""
    account, terms = subscription.account, subscription.terms
    match ending:
        case Ending.TTL:
            return agent.now >= subscription.expires_at
        case Ending.CREDIT:
            return account.credit < terms.event_fee
        case Ending.EVENTS:
            return terms.max_events is not None and account.delivered >= terms.max_events
        case Ending.UNREACHABLE:
            return subscription.trouble.failures > 0
    return True


def end_and_tell(
    agent: Agent, subscription: "PaidSubscription", ending: Ending, *, asked_at: int | None = None
) -> "PaidSubscription | None":
    """End a subscription by HTTP or by the operator. The next sweep sends CLOSED to a subscriber by
    push."""
    ended = end(agent, subscription, ending, asked_at=asked_at)
    if ended is not None and ended.is_push:
        agent.paid_subscriptions.wake_at(ended, agent.now_ms)
    return ended
