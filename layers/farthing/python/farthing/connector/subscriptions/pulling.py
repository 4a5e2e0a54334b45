"""Delivery by pull: messages in the answer to a REQ, charged when they are handed out.

The caller of `hand_out_messages` must commit the new state of the subscription before the answer
leaves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from farthing.btp_nips.account import Account, Step, Stop, hand_out
from farthing.btp_nips.answers import Candidate, Chosen, all_fit, choose_messages
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
from farthing.connector.subscriptions.reading import NOTHING_KNOWN, Found, Reading
from farthing.context import Agent
from farthing.store.events import StoredEvent
from farthing.store.paid_records import PaidSubscription

# Octets of an answer that stay free for the relay's last messages: a NOTICE that credit is low or
# gone, and CLOSED. A large event may take them: then the last messages come with the next pull.
_LAST_WORDS: Final = 1200

# How a subscription ends when no more events can be handed out.
_ENDINGS: Final = {Stop.CREDIT: Ending.CREDIT, Stop.EVENTS: Ending.EVENTS}


class Handed(NamedTuple):
    """The messages that a pull hands out, and the subscription's new state."""

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
    known: Mapping[str, StoredEvent] = NOTHING_KNOWN,
) -> Handed:
    """Raises LimitExceeded if nothing is handed out because too many events were delivered again.
    `known` has events that were just read."""
    reading = Reading(agent, subscription, backlog, start, at_once=most + 1, known=known)
    found = reading.take(most)
    room = answer_of(agent, subscription).room
    candidates = _candidates(agent, subscription, found, room)
    spare = _spare(subscription, sum(not each.is_eose for each in found), drawable)
    chosen, is_full = choose_messages(room, candidates, spare=spare)
    steps = [
        Step(each.position, is_event=not (each.is_replaced or one.is_eose))
        for each, one in zip(chosen, found, strict=False)
    ]
    limit = agent.settings.subscription_replays
    outcome = hand_out(
        subscription.account, subscription.terms, steps, purse=drawable, max_replays=limit
    )
    if outcome.stop is Stop.REPLAYS and not outcome.steps:
        raise LimitExceeded(
            f"expected at most {limit} events to be delivered again: go on with `after`, "
            "at the last position that you have"
        )
    account = outcome.account
    if outcome.steps == len(found):  # also past entries that match no filter
        account = account.moved_to(max(account.cursor, reading.reached))
    after = _after(subscription, account, found[: outcome.steps])
    after = replace(after, refilled=after.refilled + outcome.refilled)
    messages = _written(agent, after, chosen[: outcome.steps], found)
    more = is_full or reading.more or outcome.stop is not None
    told, words, ending = _end(agent, after, outcome.stop, drawable - outcome.refilled)
    if all_fit(room, [*messages, *words]):
        after, messages, more = told, [*messages, *words], more and ending is None
    else:
        more, ending = more or ending is not None, None
    return Handed(after, messages, more, outcome.refilled, ending)


def _spare(subscription: PaidSubscription, events: int, drawable: int) -> int:
    """The octets to keep free for the relay's last messages, if they may follow these events."""
    account, terms = subscription.account, subscription.terms
    most = terms.max_events
    is_over = most is not None and account.delivered + events > most
    left = account.credit + drawable - events * terms.event_fee
    is_low = credit_level(left, 0, terms.event_fee) is not CreditLevel.ENOUGH
    return _LAST_WORDS if is_over or is_low else 0


def messages_again(
    agent: Agent, subscription: PaidSubscription, backlog: bytes, start: Position, most: int
) -> tuple[list[Written], bool]:
    """The messages that a pull has handed out before, for a repeat of the pull: no charge, no new
    messages. Also whether there is more to pull."""
    reading = Reading(agent, subscription, backlog, start, at_once=most + 1)
    cursor = subscription.account.cursor
    found = [each for each in reading.take(most) if each.position <= cursor]
    room = answer_of(agent, subscription).room
    candidates = _candidates(agent, subscription, found, room)
    # Whatever was handed out fits, with or without octets for the last messages.
    chosen, is_full = choose_messages(room, candidates)
    messages, more = [each.message for each in chosen], is_full or reading.more
    if not subscription.ending:
        return messages, more
    left = agent.subscription_funds.of(subscription.owner).drawable
    words = last_words(agent, subscription, Ending(subscription.ending), left)
    return ([*messages, *words], False) if all_fit(room, [*messages, *words]) else (messages, more)


def _after(before: PaidSubscription, account: Account, taken: Sequence[Found]) -> PaidSubscription:
    state = before.state
    if any(each.is_eose for each in taken):
        state = after_eose(state)
    return replace(before, account=account, state=state)


def _candidates(
    agent: Agent, subscription: PaidSubscription, found: Sequence[Found], room: int
) -> list[Candidate]:
    messages = messages_of(agent, subscription)
    deliveries = messages.events(subscription.terms.event_fee)
    candidates = []
    for position, event in found:
        if event is None:
            eose = _eose(agent, subscription, position)
            candidates.append(Candidate(position, eose))
            continue
        whole = deliveries.of(position, event.json, event.created_at)
        instead = None
        if whole.entry_size > room:
            instead = partial(messages.too_large, position, event.id, event.created_at)
        candidates.append(Candidate(position, whole, instead))
    return candidates


def _written(
    agent: Agent, after: PaidSubscription, chosen: Sequence[Chosen], found: Sequence[Found]
) -> list[Written]:
    """The messages to send. EOSE states the remaining credit, which is known only now."""
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
    """The last messages of the answer, and whether the subscription ends with them."""
    credit, fee = subscription.account.credit, subscription.terms.event_fee
    level = credit_level(credit, drawable, fee)
    ending = None if stop is None else _ENDINGS.get(stop)
    if level is CreditLevel.GONE:
        ending = Ending.CREDIT
    if ending is not None:
        words = last_words(agent, subscription, ending, credit + drawable)
        return replace(subscription, is_told=True), words, ending
    if subscription.is_low or level is CreditLevel.ENOUGH:
        return subscription, [], None
    text = low_credit_text(credit, drawable, fee)
    notice = messages_of(agent, subscription).notice(LOW_CREDIT, text, agent.now)
    return replace(subscription, is_low=True), [notice], None


def last_words(
    agent: Agent, subscription: PaidSubscription, ending: Ending, left: int
) -> list[Written]:
    """CLOSED, and before it a NOTICE of the reason if the owner can change it. `left` is the
    owner's remaining credit and purse."""
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
