"""Delivery by pull: messages in the answer to a REQ, charged when they are handed out.

Whoever calls `hand_out_messages` commits what becomes of the subscription before the answer leaves.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from farthing.btp_nips.account import Account, Step, Stop, hand_out
from farthing.btp_nips.answers import Candidate, Chosen, choose_messages
from farthing.btp_nips.codec import Written
from farthing.btp_nips.errors import LimitExceeded, PaymentInsufficient
from farthing.btp_nips.fees import (
    LOW_CREDIT,
    CreditLevel,
    credit_level,
    low_credit_text,
    no_credit_text,
)
from farthing.btp_nips.lifecycle import Ending, after_eose
from farthing.btp_nips.positions import Position
from farthing.connector.subscriptions.answering import answer_of, messages_of, token_of
from farthing.connector.subscriptions.reading import Found, Reading
from farthing.context import Agent
from farthing.store.paid_subscriptions import PaidSubscription

# Octets of an answer that are kept free for what the relay has to say at its end: a NOTICE that
# credit is low or gone, and CLOSED.
_LAST_WORDS: Final = 1200


# What ends a subscription when no more can be handed out.
_ENDINGS: Final = {Stop.CREDIT: Ending.CREDIT, Stop.EVENTS: Ending.EVENTS}


class Handed(NamedTuple):
    """What a pull hands out, and what becomes of the subscription."""

    subscription: PaidSubscription
    messages: Sequence[Written]
    more: bool
    refill: int  # to be drawn from the owner's funds
    ending: Ending | None


def hand_out_messages(
    agent: Agent,
    subscription: PaidSubscription,
    backlog: bytes,
    start: Position,
    most: int,
    drawable: int,
) -> Handed:
    """Raises LimitExceeded where nothing is handed out because too much was replayed."""
    reading = Reading(agent, subscription, backlog, start)
    found = reading.take(most)
    room = answer_of(agent, subscription).room - _LAST_WORDS
    chosen, is_full = choose_messages(room, _candidates(agent, subscription, found))
    steps = [
        Step(each.position, is_event=not (each.is_replaced or one.is_eose))
        for each, one in zip(chosen, found, strict=False)
    ]
    limit = agent.settings.subscription_replays
    outcome = hand_out(
        subscription.account, subscription.terms, steps, purse=drawable, max_replays=limit
    )
    if outcome.stop is Stop.REPLAYS and not outcome.steps:
        raise LimitExceeded(f"expected at most {limit} events to be delivered again")
    account = outcome.account
    if outcome.steps == len(found):  # also past what matches nothing
        account = account.moved_to(max(account.cursor, reading.reached))
    after = _after(subscription, account, found[: outcome.steps])
    after = replace(after, refilled=after.refilled + outcome.refilled)
    messages = _written(agent, after, chosen[: outcome.steps], found)
    after, last_words, ending = _end(agent, after, outcome.stop, drawable - outcome.refilled)
    more = is_full or reading.more or outcome.stop is Stop.REPLAYS
    return Handed(
        after, [*messages, *last_words], more and ending is None, outcome.refilled, ending
    )


def messages_again(
    agent: Agent, subscription: PaidSubscription, backlog: bytes, start: Position, most: int
) -> tuple[list[Written], bool]:
    """What a pull has handed out before, for its repetition: nothing is charged and nothing new is
    in it. And whether there is more to pull."""
    reading = Reading(agent, subscription, backlog, start)
    cursor = subscription.account.cursor
    found = [each for each in reading.take(most) if each.position <= cursor]
    room = answer_of(agent, subscription).room - _LAST_WORDS
    chosen, is_full = choose_messages(room, _candidates(agent, subscription, found))
    messages = [each.message for each in chosen]
    if subscription.ending:
        left = agent.subscription_funds.of(subscription.owner).drawable
        messages += last_words(agent, subscription, Ending(subscription.ending), left)
    return messages, (is_full or reading.more) and not subscription.ending


def _after(before: PaidSubscription, account: Account, taken: Sequence[Found]) -> PaidSubscription:
    state = before.state
    if any(each.is_eose for each in taken):
        state = after_eose(state)
    return replace(before, account=account, state=state)


def _candidates(
    agent: Agent, subscription: PaidSubscription, found: Sequence[Found]
) -> list[Candidate]:
    messages = messages_of(agent, subscription)
    fee = subscription.terms.event_fee
    candidates = []
    for position, event in found:
        if event is None:
            eose = _eose(agent, subscription, position)
            candidates.append(Candidate(position, eose))
            continue
        whole = messages.event(position, event.json, event.created_at, fee)
        instead = messages.too_large(position, event.id, event.created_at)
        candidates.append(Candidate(position, whole, instead))
    return candidates


def _written(
    agent: Agent, after: PaidSubscription, chosen: Sequence[Chosen], found: Sequence[Found]
) -> list[Written]:
    """The messages that go out: EOSE states the credit that is left, which is known only now."""
    return [
        _eose(agent, after, each.position) if one.is_eose else each.message
        for each, one in zip(chosen, found, strict=False)
    ]


def _eose(agent: Agent, subscription: PaidSubscription, position: Position) -> Written:
    token = token_of(agent, subscription, position)
    credit = subscription.account.credit
    return messages_of(agent, subscription).eose(position, subscription.stored, token, credit)


def _end(
    agent: Agent, subscription: PaidSubscription, stop: Stop | None, drawable: int
) -> tuple[PaidSubscription, list[Written], Ending | None]:
    """What is said at the end of the messages, and whether the subscription ends with them."""
    credit, fee = subscription.account.credit, subscription.terms.event_fee
    ending = None if stop is None else _ENDINGS.get(stop)
    if ending is not None:
        words = last_words(agent, subscription, ending, credit + drawable)
        return replace(subscription, is_told=True), words, ending
    if not fee or subscription.is_low:
        return subscription, [], None
    if credit_level(credit, drawable, fee) is CreditLevel.ENOUGH:
        return subscription, [], None
    text = low_credit_text(credit, drawable, fee)
    notice = messages_of(agent, subscription).notice(LOW_CREDIT, text, agent.now)
    return replace(subscription, is_low=True), [notice], None


def last_words(
    agent: Agent, subscription: PaidSubscription, ending: Ending, left: int
) -> list[Written]:
    """CLOSED, and before it why, where that is for the owner to change. `left` is all it has."""
    messages, now = messages_of(agent, subscription), agent.now
    closed = messages.closed(ending, now)
    match ending:
        case Ending.CREDIT:
            text = no_credit_text(left, 0, subscription.terms.event_fee)
            return [messages.notice(PaymentInsufficient.error, text, now), closed]
        case Ending.EVENTS:
            most = subscription.terms.max_events
            text = f"a free subscription delivers at most {most} events"
            return [messages.notice(LimitExceeded.error, text, now), closed]
    return [closed]
