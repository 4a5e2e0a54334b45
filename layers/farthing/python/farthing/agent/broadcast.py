"""Broadcasting: placing events at other relays. A relay with an ILP address is paid by ILP. An
ordinary relay is sent a plain EVENT.

The outbox has the packet and its amount before anything is sent. So after a crash the same packet
is sent again, and a relay charges the same packet only once.
"""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum, auto
from hashlib import sha256
from typing import Any, NamedTuple

import orjson

from farthing.agent.targets import targets_of, terms_of
from farthing.connector.client import (
    NotPayable,
    RelayTerms,
    prepare_payment,
    quote_from_answer,
    shortfall,
    terms_from_information,
)
from farthing.connector.forwarding import find_next_hop
from farthing.connector.origin import PACKET_SECONDS, name_of, send_own, was_fulfilled
from farthing.connector.toon_event import STORED_ALREADY
from farthing.context import Agent
from farthing.ilp.condition import InvalidKey
from farthing.ilp.packet import Code, Fulfill, InvalidPacket, Prepare, Reject, to_milliseconds
from farthing.ilp.toon import NotEncodable, dumps_event
from farthing.nostr.events import Event
from farthing.nostr.kinds import PRIVATE_KINDS, Keeping
from farthing.ports.outbound import OutboundFailed
from farthing.ports.relays import Allowance, ReadLimits, RelayFailed
from farthing.store.outbox import Budgets, Delivery, DeliveryState, Lost, OverBudget

log = logging.getLogger("farthing")

_DAY = 24 * 3600
_AT_ONCE = 8
_FRESH_SECONDS = 3600
_TRIES = 8  # packets of one attempt: each reject tells a price or fees
_RELAY_SECONDS = 8
# How long one process keeps a delivery: until a relay must have answered, or the packet has
# expired.
_TAKEN_SECONDS = 4 * _RELAY_SECONDS
_PACKET_TAKEN_SECONDS = PACKET_SECONDS + 5
_ANSWER_OCTETS = 65536


class NotBroadcast(ValueError):
    """The event may not be broadcast. The message gives the reason."""


def broadcast(agent: Agent, event: Event, *, retry_failed: bool = False) -> int:
    """Write an event's deliveries into the outbox. Returns the number of relays. With
    `retry_failed`, deliveries that have failed before begin anew."""
    if event.kind in PRIVATE_KINDS or event.is_protected:
        raise NotBroadcast("private and protected events are not broadcast")
    if event.keeping is Keeping.EPHEMERAL:
        raise NotBroadcast("ephemeral events are not broadcast")
    targets = targets_of(agent, event)
    deliveries = [
        Delivery(event.id, target.relay, target.group, agent.now, target.pubkey)
        for target in targets
    ]
    if not deliveries:
        return 0
    agent.outbox.add(event.id, deliveries, agent.now)
    if retry_failed:
        agent.outbox.retry_failed(deliveries)
    agent.broadcast_wakes.wake(event.id)
    return len(deliveries)


def broadcast_new(agent: Agent) -> int:
    """Broadcast the owner's events since the last call. The first call broadcasts nothing: a change
    of settings must not broadcast a relay's past."""
    before, last = agent.outbox.looked_at(), agent.changes.last_number()
    if before is None or before == last:
        agent.outbox.look_at(before, last)
        return 0
    new = [change.id for change in agent.changes.between(before, last, [agent.settings.pubkey])]
    found = agent.events.get_many(new)
    done = 0
    for stored in found.values():
        try:
            broadcast(agent, stored.event)
            done += 1
        except NotBroadcast:
            continue
    # The checkpoint is written last: after a crash in between, the same deliveries are written
    # again, which changes nothing.
    agent.outbox.look_at(before, last)
    return done


def rebroadcast(agent: Agent, events: Sequence[Event]) -> None:
    """Broadcast other authors' events if they are recent. Older events are not broadcast."""
    for event in events:
        if event.created_at >= agent.now - _FRESH_SECONDS:
            with suppress(NotBroadcast):
                broadcast(agent, event)


def deliver_due(
    agent: Agent, most: int = 100, is_stopping: Callable[[], bool] = lambda: False
) -> int:
    """Attempt every delivery that is due. Returns their number. If relays do not
    answer, this takes minutes: no attempt begins once `is_stopping` returns true."""
    due = agent.outbox.due(agent.now, most)
    _attempt_all(agent, due, is_stopping)
    return len(due)


def deliver_event(agent: Agent, event_id: str) -> int:
    """Attempt the deliveries of one event that are due, and ask for a wake when the next one is
    due. Returns the number of attempts."""
    due = [each for each in _open(agent, event_id) if each.due <= agent.now]
    _attempt_all(agent, due)
    left = [each.due for each in _open(agent, event_id)]
    if left:
        agent.broadcast_wakes.wake(event_id, max(1, min(left) - agent.now))
    return len(due)


def wake_due(agent: Agent, most: int = 1000) -> int:
    """Ask workers to attempt every delivery that is due. Returns the number of events."""
    events = agent.outbox.due_events(agent.now, most)
    for event_id in events:
        agent.broadcast_wakes.wake(event_id)
    return len(events)


def is_behind(agent: Agent) -> bool:
    """Whether something was published since the owner's new events were last looked at."""
    return agent.outbox.looked_at() != agent.changes.last_number()


def wake_outbox(agent: Agent) -> dict[str, Any]:
    """On a schedule in the cloud: send a wake to the queue for everything that is due. Earlier
    wakes may be lost, or may have come too early."""
    is_new = agent.settings.broadcast_all and is_behind(agent)
    if is_new:
        agent.broadcast_wakes.wake_for_new()
    return {"new": is_new, "woken": wake_due(agent)}


def answer_wake(agent: Agent, event_id: str | None) -> None:
    """A message of the queue in the cloud: attempt the due deliveries of one event. Without an
    event, broadcast the owner's new events."""
    if event_id is not None:
        deliver_event(agent, event_id)
    elif agent.settings.broadcast_all:
        broadcast_new(agent)


def _open(agent: Agent, event_id: str) -> list[Delivery]:
    found = agent.outbox.broadcast(event_id)
    return [] if found is None else [each for each in found.deliveries if each.is_open]


def _attempt_all(
    agent: Agent, due: Sequence[Delivery], is_stopping: Callable[[], bool] = lambda: False
) -> None:
    def attempt(delivery: Delivery) -> None:
        if not is_stopping():
            _attempt(agent, delivery)

    if due:
        with ThreadPoolExecutor(_AT_ONCE) as workers:
            list(workers.map(attempt, due))


def _attempt(agent: Agent, delivery: Delivery) -> None:
    try:
        mine = agent.outbox.take(delivery, agent.now + _TAKEN_SECONDS)
        if mine.checks:
            agent.outbox.checked(mine, _is_kept(agent, mine), agent.now)
        else:
            _Attempt(agent, replace(mine, attempts=mine.attempts + 1)).run()
    except Lost:  # another process has this delivery
        return
    except Exception:
        log.exception("a delivery to a relay failed", extra={"relay": delivery.relay})


def _is_kept(agent: Agent, delivery: Delivery) -> bool | None:
    """Whether the relay still has the event; None if the relay need not have the event, or does not
    answer."""
    if agent.events.get(delivery.event_id) is None:
        return None  # deleted, replaced or expired meanwhile
    limits = ReadLimits(1, _ANSWER_OCTETS * 4, _RELAY_SECONDS)
    try:
        found = list(agent.relays.read(delivery.relay, [{"ids": [delivery.event_id]}], limits))
    except RelayFailed:
        return None
    return any(isinstance(each, dict) and each.get("id") == delivery.event_id for each in found)


class _End(Enum):
    STORED = auto()
    LATER = auto()
    FAILED = auto()


class _Outcome(NamedTuple):
    end: _End
    why: str = ""
    free: bool = False  # stored, and nothing was paid
    due: int = 0  # when to try again, if that is known


@dataclass
class _Attempt:
    agent: Agent
    delivery: Delivery

    def run(self) -> None:
        if self._was_paid():
            self._note(_Outcome(_End.STORED))
            return
        stored = self.agent.events.get(self.delivery.event_id)
        if stored is None:
            outcome = _Outcome(_End.FAILED, "the event is no longer stored here")
        else:
            outcome = self._guarded(stored.event)
        self._note(outcome)

    def _was_paid(self) -> bool:
        """Whether an earlier attempt has paid, and a crash kept its result out of the outbox. This
        is asked first: the event may be gone by now, or a new day's budget may be used up."""
        return bool(self.delivery.packet) and was_fulfilled(self.agent, self.delivery.packet)

    def _guarded(self, event: Event) -> _Outcome:
        """Send the event. An unexpected failure counts as an attempt, otherwise attempts would
        never end."""
        try:
            return self._send(event)
        except Lost:
            raise
        except Exception:
            log.exception("a delivery to a relay failed", extra={"relay": self.delivery.relay})
            return _Outcome(_End.LATER, "internal error")

    def _note(self, outcome: _Outcome) -> None:
        delivery, outbox, settings = self.delivery, self.agent.outbox, self.agent.settings
        last = delivery.attempts >= settings.broadcast_attempts
        if outcome.end is _End.STORED and outcome.free:
            outbox.finish(delivery, DeliveryState.STORED, outcome.why)
        elif outcome.end is _End.STORED:
            outbox.finish(delivery, DeliveryState.STORED, "", delivery.amount, self._check_at())
        elif outcome.end is _End.LATER and not last:
            wait = min(_DAY, settings.broadcast_retry_seconds << min(delivery.attempts - 1, 20))
            if delivery.packet:
                # Without an answer the packet may be on its way, and connectors charge each of two
                # equal packets that they hold at the same time.
                wait = max(wait, _PACKET_TAKEN_SECONDS)
            outbox.postpone(delivery, outcome.due or self.agent.now + wait, outcome.why)
        else:
            outbox.finish(delivery, DeliveryState.FAILED, outcome.why)

    def _check_at(self) -> int | None:
        """When the event is read back from the relay. Only a sample of the paid events is."""
        settings, delivery = self.agent.settings, self.delivery
        if not delivery.amount:
            return None
        draw = sha256(f"{delivery.event_id}{delivery.relay}".encode()).digest()
        if int.from_bytes(draw[:4]) % 100 >= settings.broadcast_check_percent:
            return None
        return self.agent.now + settings.broadcast_check_seconds

    def _send(self, event: Event) -> _Outcome:
        try:
            if not self.delivery.destination:
                self._learn_terms(event)
            if not self.delivery.destination:
                return self._publish(event)
            return self._pay(event)
        except OverBudget as error:
            tomorrow = (self.agent.now // _DAY + 1) * _DAY
            end = _End.LATER if error.tomorrow else _End.FAILED
            return _Outcome(end, str(error), due=tomorrow)
        except RelayFailed as error:
            return _Outcome(_End.LATER, str(error))
        except (NotPayable, NotEncodable, InvalidPacket, InvalidKey) as error:
            return _Outcome(_End.FAILED, str(error))

    def _learn_terms(self, event: Event) -> None:
        """Find out whether the relay takes payment, at which address, and its price."""
        agent, delivery = self.agent, self.delivery
        terms = terms_of(agent, delivery.pubkey) if delivery.pubkey else None
        if terms is None:
            terms = self._told_terms()
        if terms is None:
            return
        price = terms.tariff.price_event(event, len(dumps_event(event)))
        settings = agent.settings
        if not price or terms.destination == settings.own_ilp_address:
            return  # a plain EVENT is enough
        if (terms.tariff.asset_code, terms.tariff.asset_scale) != (
            settings.asset_code, settings.asset_scale,
        ):  # fmt: skip
            raise NotPayable(
                f"expected a relay paid in our own asset, got one paid in {terms.tariff.unit}"
            )
        condition = "" if event.pubkey == settings.pubkey else self._quote(event, terms)
        self.delivery = replace(
            delivery, pubkey=terms.pubkey, destination=terms.destination, price=price,
            condition=condition,
        )  # fmt: skip

    def _told_terms(self) -> RelayTerms | None:
        """The terms in the relay information document; None for an ordinary relay, without an ILP
        address."""
        try:
            document = self.agent.relays.information(self.delivery.relay, _RELAY_SECONDS)
            return terms_from_information(dict(document))
        except (RelayFailed, NotPayable):
            return None

    def _quote(self, event: Event, terms: RelayTerms) -> str:
        """Ask the relay for its condition, for another author's event."""
        body = orjson.dumps({"event": event.as_dict()})
        url = terms.endpoint.removesuffix("/ilp") + "/v1/quotes"
        try:
            answer = self.agent.outbound.post(
                url, {"Content-Type": "application/json"}, body, _RELAY_SECONDS
            )
            told: Any = orjson.loads(answer.body[:_ANSWER_OCTETS])
        except (OutboundFailed, ValueError) as error:
            raise RelayFailed(f"the relay gives no quote: {error}") from None
        if not isinstance(told, dict):
            raise NotPayable("the relay's quote does not say how to pay")
        quote = quote_from_answer(told)
        if quote.event_id != event.id or quote.destination != terms.destination:
            raise NotPayable(
                "expected a quote for this event, got one for another address or event"
            )
        return quote.condition.hex()

    def _publish(self, event: Event) -> _Outcome:
        allowance = Allowance(1, _ANSWER_OCTETS)
        with self.agent.relays.session(self.delivery.relay, allowance, _RELAY_SECONDS) as session:
            told = session.publish(orjson.loads(event.to_json()))
        if told.accepted or told.prefix == "duplicate":
            return _Outcome(_End.STORED, told.message, free=True)
        later = told.prefix in ("rate-limited", "error")
        return _Outcome(_End.LATER if later else _End.FAILED, told.message or "refused")

    def _pay(self, event: Event) -> _Outcome:
        """Send the packet in the outbox, or write one into the outbox and send it. A rejected
        packet costs nothing, so a packet with a larger amount may follow."""
        amount = self.delivery.amount or self.delivery.price + self._fees()
        outcome = _Outcome(_End.FAILED)
        for _ in range(_TRIES):
            prepare = self._prepare(event, amount)
            self._reserve(prepare)
            reply = send_own(self.agent, prepare)
            if isinstance(reply, Fulfill):
                return _Outcome(_End.STORED)
            outcome, more = _read(reply), self._learn(reply, amount)
            if not more:
                break
            amount += more
        return outcome

    def _fees(self) -> int:
        """The fees of the connectors on the way, according to the routing table."""
        route = find_next_hop(self.agent, self.delivery.destination).route
        return 0 if route is None or route.hops <= 1 else route.fee

    def _reserve(self, prepare: Prepare) -> None:
        settings = self.agent.settings
        share = settings.broadcast_shares.get(self.delivery.group, 0)
        budgets = Budgets(
            settings.broadcast_event_budget,
            settings.broadcast_event_budget * share // 100,
            settings.broadcast_day_budget,
        )
        day = self.agent.now // _DAY
        until = self.agent.now + _PACKET_TAKEN_SECONDS
        named = replace(self.delivery, packet=name_of(prepare))
        self.delivery = self.agent.outbox.reserve(named, prepare.amount, day, budgets, until)

    def _prepare(self, event: Event, amount: int) -> Prepare:
        """The packet for an amount. It is the same at any time: `send_own` sets the expiry."""
        delivery, settings = self.delivery, self.agent.settings
        now = to_milliseconds(datetime.fromtimestamp(self.agent.now, UTC))
        if delivery.condition:
            condition = bytes.fromhex(delivery.condition)
            return Prepare(
                amount=amount, expires_at=now, condition=condition,
                destination=delivery.destination, data=dumps_event(event),
            )  # fmt: skip
        terms = RelayTerms(delivery.destination, "", delivery.pubkey, settings.tariff)
        secret = bytes.fromhex(settings.secret_key)
        return prepare_payment(event, secret, terms, now, amount).prepare

    def _learn(self, reject: Reject, amount: int) -> int:
        """The amount to add, according to a reject. A relay may raise its price once."""
        if reject.code == Code.R01_INSUFFICIENT_SOURCE_AMOUNT:
            return amount  # the fees on the way are unknown, and exceed the whole amount
        short = shortfall(reject)
        if short is None:
            return 0
        if short.price != self.delivery.price:
            if self.delivery.repriced:
                return 0
            self.delivery = replace(self.delivery, price=short.price, repriced=True)
        return short.missing


def _read(reject: Reject) -> _Outcome:
    why = f"{reject.code} {reject.message}"
    if reject.code == Code.F99_APPLICATION_ERROR and _is_duplicate(reject.message):
        return _Outcome(_End.STORED, why, free=True)
    return _Outcome(_End.FAILED if str(reject.code).startswith("F") else _End.LATER, why)


def _is_duplicate(message: str) -> bool:
    """In our own words, or by the prefix of NIP-01."""
    return STORED_ALREADY in message or message.startswith("duplicate:")
