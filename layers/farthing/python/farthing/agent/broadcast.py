"""Broadcasting: placing events at other relays, each paid by ILP if it has an address, and sent a
plain EVENT if it is an ordinary relay.

Everything is in the outbox before anything is sent: which packet, for how much. So whoever takes a
delivery up after a crash sends the same packet again, and the same packet is paid once.
"""

import logging
from collections.abc import Sequence
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
    terms_from_information,
)
from farthing.connector.forwarding import find_way
from farthing.connector.origin import PACKET_SECONDS, send_own
from farthing.connector.toon_event import STORED_ALREADY
from farthing.context import Agent
from farthing.ilp.condition import InvalidKey
from farthing.ilp.packet import Code, Fulfill, InvalidPacket, Prepare, Reject, to_milliseconds
from farthing.ilp.toon import NotEncodable, dumps_event
from farthing.nostr.events import Event
from farthing.nostr.kinds import PRIVATE_KINDS, Keeping
from farthing.ports.outbound import OutboundFailed
from farthing.ports.relays import Allowance, ReadLimits, RelayFailed
from farthing.store.outbox import Budgets, Delivery, Lost, OverBudget, State

log = logging.getLogger("farthing")

_DAY = 24 * 3600
_AT_ONCE = 8
_FRESH_SECONDS = 3600
_TRIES = 8  # packets of one attempt: prices and fees are learnt from rejects
_RELAY_SECONDS = 8
# How long a delivery is ours: until a relay must have answered, or the packet has expired.
_TAKEN_SECONDS = 4 * _RELAY_SECONDS
_PACKET_TAKEN_SECONDS = PACKET_SECONDS + 5
_ANSWER_OCTETS = 65536


class NotBroadcast(ValueError):
    """An event that is not broadcast; the message says why."""


def broadcast(agent: Agent, event: Event) -> int:
    """Write down where an event goes. How many relays it goes to."""
    if event.kind in PRIVATE_KINDS or event.is_protected:
        raise NotBroadcast("private and protected events are not broadcast")
    if event.keeping is Keeping.EPHEMERAL:
        raise NotBroadcast("ephemeral events are not broadcast")
    targets = targets_of(agent, event)
    deliveries = [
        Delivery(event.id, target.relay, target.group, agent.now, target.pubkey)
        for target in targets
    ]
    agent.outbox.add(event.id, deliveries, agent.now)
    return len(deliveries)


def broadcast_new(agent: Agent) -> int:
    """Broadcast what the owner has published since the last look. The first look sees nothing: a
    relay's past is not broadcast by a change of settings."""
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
    # After it: should we crash in between, they are written down again, which changes nothing.
    agent.outbox.look_at(before, last)
    return done


def rebroadcast(agent: Agent, events: Sequence[Event]) -> None:
    """Broadcast events of others that have just been written. The past is left alone."""
    for event in events:
        if event.created_at >= agent.now - _FRESH_SECONDS:
            with suppress(NotBroadcast):
                broadcast(agent, event)


def deliver_due(agent: Agent, most: int = 100) -> int:
    """Attempt everything that is due. How many deliveries that were."""
    due = agent.outbox.due(agent.now, most)
    if not due:
        return 0
    with ThreadPoolExecutor(_AT_ONCE) as workers:
        list(workers.map(lambda each: _attempt(agent, each), due))
    return len(due)


def _attempt(agent: Agent, delivery: Delivery) -> None:
    try:
        mine = agent.outbox.take(delivery, agent.now + _TAKEN_SECONDS)
        if mine.checks:
            agent.outbox.checked(mine, _is_kept(agent, mine), agent.now)
        else:
            _Attempt(agent, replace(mine, attempts=mine.attempts + 1)).run()
    except Lost:  # somebody else has it
        return
    except Exception:
        log.exception("a delivery to %s failed", delivery.relay)


def _is_kept(agent: Agent, delivery: Delivery) -> bool | None:
    """Whether the relay still has the event; None where it need not have it, or does not answer."""
    if agent.events.get(delivery.event_id) is None:
        return None  # deleted, replaced or expired since
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
    due: int = 0  # when to try again, where that is known


@dataclass
class _Attempt:
    agent: Agent
    delivery: Delivery

    def run(self) -> None:
        stored = self.agent.events.get(self.delivery.event_id)
        if stored is None:
            outcome = _Outcome(_End.FAILED, "the event is no longer here")
        else:
            outcome = self._guarded(stored.event)
        self._note(outcome)

    def _guarded(self, event: Event) -> _Outcome:
        """What goes wrong here must count as an attempt: there is no end to them otherwise."""
        try:
            return self._send(event)
        except Lost:
            raise
        except Exception:
            log.exception("a delivery to %s failed", self.delivery.relay)
            return _Outcome(_End.LATER, "internal error")

    def _note(self, outcome: _Outcome) -> None:
        delivery, outbox, settings = self.delivery, self.agent.outbox, self.agent.settings
        last = delivery.attempts >= settings.broadcast_attempts
        if outcome.end is _End.STORED and outcome.free:
            outbox.finish(delivery, State.STORED, outcome.why)
        elif outcome.end is _End.STORED:
            outbox.finish(delivery, State.STORED, "", delivery.amount, self._check_at())
        elif outcome.end is _End.LATER and not last:
            wait = settings.broadcast_retry_seconds << min(delivery.attempts - 1, 20)
            outbox.postpone(delivery, outcome.due or self.agent.now + wait, outcome.why)
        else:
            outbox.finish(delivery, State.FAILED, outcome.why)

    def _check_at(self) -> int | None:
        """When the event is read back: a sample of what was paid for."""
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
        """Find out whether the relay is paid, where, and how much."""
        agent, delivery = self.agent, self.delivery
        terms = terms_of(agent, delivery.pubkey) if delivery.pubkey else None
        if terms is None:
            terms = self._told_terms()
        if terms is None:
            return
        price = terms.tariff.price_event(event, len(dumps_event(event)))
        settings = agent.settings
        if not price or terms.destination == settings.own_ilp_address:
            return  # a plain EVENT does
        if (terms.tariff.asset_code, terms.tariff.asset_scale) != (
            settings.asset_code, settings.asset_scale,
        ):  # fmt: skip
            raise NotPayable(f"the relay asks for {terms.tariff.unit}")
        condition = "" if event.pubkey == settings.pubkey else self._quote(event, terms)
        self.delivery = replace(
            delivery, pubkey=terms.pubkey, destination=terms.destination, price=price,
            condition=condition,
        )  # fmt: skip

    def _told_terms(self) -> RelayTerms | None:
        """By the relay information document; an ordinary relay has no ILP address in it."""
        try:
            document = self.agent.relays.information(self.delivery.relay, _RELAY_SECONDS)
            return terms_from_information(dict(document))
        except (RelayFailed, NotPayable):
            return None

    def _quote(self, event: Event, terms: RelayTerms) -> str:
        """The relay's own condition, for an event that is not ours."""
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
            raise NotPayable("the relay's quote is for something else")
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
        """Send the packet that is written down, or write one down and send it. A packet that is
        rejected has cost nothing, so it may be followed by another with a larger amount."""
        amount = self.delivery.amount or self.delivery.price + self._fees()
        outcome = _Outcome(_End.FAILED)
        for _ in range(_TRIES):
            self._reserve(amount)
            reply = send_own(self.agent, self._prepare(event, amount))
            if isinstance(reply, Fulfill):
                return _Outcome(_End.STORED)
            outcome, more = _read(reply), self._learn(reply, amount)
            if not more:
                break
            amount += more
        return outcome

    def _fees(self) -> int:
        """What connectors on the way keep, by the routing table."""
        route = find_way(self.agent, self.delivery.destination).route
        return 0 if route is None or route.hops <= 1 else route.fee

    def _reserve(self, amount: int) -> None:
        settings = self.agent.settings
        share = settings.broadcast_shares.get(self.delivery.group, 0)
        budgets = Budgets(
            settings.broadcast_event_budget,
            settings.broadcast_event_budget * share // 100,
            settings.broadcast_day_budget,
        )
        day = self.agent.now // _DAY
        until = self.agent.now + _PACKET_TAKEN_SECONDS
        self.delivery = self.agent.outbox.reserve(self.delivery, amount, day, budgets, until)

    def _prepare(self, event: Event, amount: int) -> Prepare:
        """The same packet for the same amount, whenever it is made: `send_own` sets the expiry."""
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
        """How much more is to be sent. A relay may raise its price once."""
        if reject.code == Code.R01_INSUFFICIENT_SOURCE_AMOUNT:
            return amount  # the fees on the way are unknown, and more than all of it
        told = _price_told(reject)
        if told is None:
            return 0
        price, received = told
        if price != self.delivery.price:
            if self.delivery.repriced:
                return 0
            self.delivery = replace(self.delivery, price=price, repriced=True)
        return max(0, price - received)


def _price_told(reject: Reject) -> tuple[int, int] | None:
    """The price, and what arrived, as the receiver of a packet says (F04)."""
    if reject.code != Code.F04_INSUFFICIENT_DESTINATION_AMOUNT:
        return None
    try:
        told = orjson.loads(reject.data)
        price, received = int(told["price"]), int(told["received"])
    except (KeyError, TypeError, ValueError):
        return None
    return (price, received) if 0 <= received < price else None


def _read(reject: Reject) -> _Outcome:
    why = f"{reject.code} {reject.message}"
    if reject.code == Code.F99_APPLICATION_ERROR and STORED_ALREADY in reject.message:
        return _Outcome(_End.STORED, why, free=True)
    return _Outcome(_End.FAILED if str(reject.code).startswith("F") else _End.LATER, why)
