"""A client of paid subscriptions: subscribe, iterate over events, pay for more, close.

The client opens no connection: a `Carrier` brings packets to the relay, and an `Inbox` has the
deliveries that were pushed to this agent. A message whose answer is lost is sent again unchanged,
and has its effect once.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from secrets import randbelow, token_hex
from typing import Any, Final, Protocol

import orjson

from farthing.btp_nips.answers import ReqAnswer, read_req_answer
from farthing.btp_nips.codec import decode, encode
from farthing.btp_nips.errors import PaymentInsufficient
from farthing.btp_nips.fees import LOW_CREDIT, LOW_CREDIT_FEES
from farthing.btp_nips.messages import (
    PRIORITY_MAX,
    PULL_MAX,
    Close,
    Closed,
    Delivery,
    Eose,
    EventMessage,
    Message,
    Metadata,
    Notice,
    Payment,
    Purpose,
    Req,
)
from farthing.btp_nips.models import TTL_MAX, Model
from farthing.btp_nips.positions import Position
from farthing.btp_nips.tokens import read_unverified
from farthing.connector.client import shortfall
from farthing.ilp.condition import author_fulfillment, condition_of
from farthing.ilp.packet import Fulfill, Prepare, Reject, final, to_milliseconds
from farthing.nostr.events import Event, InvalidEvent, public_key_of, verify
from farthing.nostr.filters import Filter

_EXPIRY: Final = timedelta(seconds=30)
_ATTEMPTS: Final = 4
_WAIT_SECONDS: Final = 0.5
_LONGEST_WAIT_SECONDS: Final = 60
# The beginnings of NOTICE texts that ask for money.
_LITTLE_CREDIT: Final = f"[{LOW_CREDIT}]"
_NO_CREDIT: Final = f"[{PaymentInsufficient.error}]"


class NoAnswer(Exception):
    """No reply came to a packet. Whether it has arrived is unknown."""


class RelayRejected(Exception):
    """The relay, or a connector on the way to it, has rejected a message."""

    def __init__(self, reject: Reject) -> None:
        super().__init__(f"{reject.code} {reject.message}")
        self.reject = reject
        self.code = str(reject.code)
        self.message = reject.message
        self.details = _details(reject.data)

    @property
    def error(self) -> str:
        """The name of the error, or an empty string if a connector on the way has rejected."""
        return str(self.details.get("error", ""))


class SpendLimit(Exception):
    """The payment would exceed the spending limit."""


class Carrier(Protocol):
    async def send(self, prepare: Prepare) -> Fulfill | Reject:
        """Bring a packet to its destination. Raises NoAnswer. A returned Fulfill has been checked
        against the condition."""
        ...


class Inbox(Protocol):
    """The deliveries that were pushed to this agent, by subscription."""

    async def expect(self, relay: str, subscription_id: str, until: int) -> None:
        """Fulfil deliveries for this subscription from now on."""
        ...

    async def take(self, relay: str, subscription_id: str) -> Sequence[bytes]:
        """The messages since the last call, as the data of their packets. Empty if none come for a
        while."""
        ...


@dataclass(frozen=True, slots=True)
class Relay:
    destination: str  # its ILP address
    pubkey: str


@dataclass
class Handlers:
    """Callbacks for news of a subscription other than events."""

    eose: Callable[[Eose], object] = lambda _: None
    notice: Callable[[str], object] = lambda _: None
    payment_request: Callable[[int], object] = lambda _: (
        None
    )  # called with the price of the next event
    closed: Callable[[str], object] = lambda _: None
    trouble: Callable[[str], object] = lambda _: None  # something failed and is tried again


@dataclass
class SubscriptionClient:
    """Subscriptions of one key at one relay."""

    relay: Relay
    secret: bytes = field(repr=False)
    carrier: Carrier = field(repr=False)
    inbox: Inbox | None = None
    reply_to: str = ""  # our own ILP address, for push
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def subscribe(
        self,
        filters: Sequence[Filter],
        amount: int,
        *,
        id: str = "",
        ttl: int | None = None,
        model: Model | None = None,
        push: bool = False,
        window: int | None = None,
        resume: str | None = None,
        max_spend: int | None = None,
        auto_top_up: int = 0,
        handlers: Handlers | None = None,
    ) -> "Subscription":
        """Open a subscription, or continue the one with this id."""
        made = Subscription(
            self, id or f"sub-{token_hex(8)}", is_push=push, max_spend=max_spend,
            auto_top_up=auto_top_up, handlers=handlers or Handlers(),
        )  # fmt: skip
        way = await self._way(made.id, push, ttl)
        await made.pay(amount, filters, ttl=ttl, model=model, token=resume, window=window, **way)
        return made

    async def go_on(
        self,
        id: str,
        filters: Sequence[Filter],
        token: str,
        *,
        push: bool = False,
        **options: Any,
    ) -> "Subscription | None":
        """Continue an open subscription behind the position of one of its tokens, free of charge.
        None if it has ended, or has other filters: then the token opens one at the full price."""
        named = read_unverified(token)
        if named is None or named.subscription_id != id:
            return None
        made = self.of_id(id, push=push, **options)
        with suppress(RelayRejected):
            answer = await made.status()
            # A REQ of amount 0 with other filters would open a free subscription in its place.
            is_free = answer.model is Model.FREE
            if is_free or answer.state.has_ended or self.clock() * 1000 >= answer.expires_at_ms:
                return None
            way = await self._way(id, push, None)
            await made.pay(0, filters, model=answer.model, **way)
            made.resume_behind(named.position, token)
            return made
        return None

    async def _way(self, id: str, push: bool, ttl: int | None) -> dict[str, Any]:
        """The metadata of the way of delivery. From now on, pushed messages are expected."""
        if not push:
            return {"delivery": Delivery.PULL}
        if self.inbox is None or not self.reply_to:
            raise ValueError("expected an inbox and a reply_to address for push")
        until = int(self.clock()) + (ttl or TTL_MAX)
        await self.inbox.expect(self.relay.pubkey, id, until)
        return {"delivery": Delivery.PUSH, "reply_to": self.reply_to}

    def of_id(self, id: str, *, push: bool = False, **options: Any) -> "Subscription":
        """An existing subscription, by its id."""
        return Subscription(self, id, is_push=push, **options)

    async def exchange(self, message: Message, amount: int) -> bytes:
        """The data of the answer. Sends the same data again if no answer comes."""
        data = encode(message)
        for attempt in range(_ATTEMPTS):
            try:
                reply = await self.carrier.send(self._packet(data, amount))
            except NoAnswer:
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                if isinstance(reply, Reject):
                    raise RelayRejected(reply)
                return reply.data
            await self.sleep(_WAIT_SECONDS * 2**attempt)
        raise NoAnswer("no answer came from the relay")

    def _packet(self, data: bytes, amount: int) -> Prepare:
        fulfillment = author_fulfillment(self.secret, bytes.fromhex(self.relay.pubkey), data)
        now = datetime.fromtimestamp(self.clock(), UTC)
        return Prepare(
            amount=amount,
            expires_at=to_milliseconds(now + _EXPIRY),
            condition=condition_of(fulfillment),
            destination=self.relay.destination,
            data=data,
        )

    def metadata(self, **fields: Any) -> Metadata:
        # Otherwise two messages of one second would be equal, and so count as one.
        fields.setdefault("priority", randbelow(PRIORITY_MAX + 1))
        return Metadata(int(self.clock()), sender=public_key_of(self.secret), **fields)


@dataclass
class Subscription:
    """One subscription. Iterate over it to get its events, each once, in order."""

    client: SubscriptionClient
    id: str
    is_push: bool = False
    max_spend: int | None = None
    auto_top_up: int = 0
    handlers: Handlers = field(default_factory=Handlers)
    poll_seconds: float = 1.0
    spent: int = 0  # the sum of our payments
    answer: ReqAnswer | None = None  # the relay's last answer about the subscription's state
    is_over: bool = False
    resumption_token: str = ""  # continues behind the last message that the caller has taken
    _seen: tuple[Position, bool] | None = None  # the last position, and whether EOSE was there
    _failures: int = 0  # in a row

    async def pay(
        self,
        amount: int,
        filters: Sequence[Filter] = (),
        *,
        model: Model | None = None,
        token: str | None = None,
        **metadata: Any,
    ) -> ReqAnswer:
        """Send a REQ with money. The fees of connectors on the way are added, within the spending
        limit."""
        sent = amount
        for _ in range(_ATTEMPTS):
            self._check_spend(sent)
            payment = Payment(sent, purpose=Purpose.SUBSCRIPTION, model=model)
            given = {name: value for name, value in metadata.items() if value is not None}
            req = Req(self.id, tuple(filters), payment, self.client.metadata(**given), token)
            try:
                await self._ask(req, sent)
            except RelayRejected as refused:
                missing = _missing(refused, sent)
                if not missing:
                    raise
                sent += missing
                continue
            except NoAnswer:
                self.spent += sent  # perhaps
                raise
            self.spent += sent
            assert self.answer is not None
            if filters:
                self._seen = None  # stored events come, possibly again
                self.resumption_token = self.answer.resumption_token
            return self.answer
        raise SpendLimit(f"the fees of the connectors on the way are too high: {sent} sent")

    async def top_up(self, amount: int, ttl: int | None = None) -> ReqAnswer:
        return await self.pay(amount, ttl=ttl)

    async def status(self) -> ReqAnswer:
        await self._ask(Req(self.id, (), Payment(), self.client.metadata()), 0)
        assert self.answer is not None
        return self.answer

    async def close(self) -> int:
        """Close the subscription. Returns the amount that went back to the purse."""
        message = Close(self.id, Payment(purpose=Purpose.RELAY_FEE), self.client.metadata())
        answer = orjson.loads(await self.client.exchange(message, 0))
        self.is_over = True
        return int(answer["credit"])

    def __aiter__(self) -> AsyncIterator[Event]:
        return self.events()

    async def events(self) -> AsyncIterator[Event]:
        """Events as they come, until the subscription is over."""
        async for message in self.messages():
            if isinstance(message, EventMessage):
                yield message.event

    async def stored(self) -> list[Event]:
        """The events up to EOSE, or to the end."""
        found = []
        async for message in self.messages():
            if isinstance(message, EventMessage):
                found.append(message.event)
            if isinstance(message, Eose):
                break
        return found

    async def messages(self) -> AsyncIterator[Message]:
        """All messages of the relay, in order."""
        while not self.is_over:
            some = await self._next()
            token, events = self._token_behind(), sum(isinstance(m, EventMessage) for m in some)
            for message in some:
                events -= isinstance(message, EventMessage)
                is_new = self._is_new(message)
                if is_new:
                    self._follow_credit(message)
                    await self._heed(message)
                if not events:
                    self.resumption_token = token or self.resumption_token
                if is_new:
                    yield message
            if not some and not self.is_over:
                await self.client.sleep(self.poll_seconds)

    async def _next(self) -> Sequence[Message]:
        """The next messages. A failure that may pass is tried again until the subscription's time
        is over."""
        try:
            some = await (self._pushed() if self.is_push else self._pulled())
        except (NoAnswer, RelayRejected) as error:
            if not self._may_pass(error):
                raise
            self._failures += 1
            seconds = min(2 ** (self._failures - 1), _LONGEST_WAIT_SECONDS)
            self.handlers.trouble(f"{error}; trying again in {seconds} s")
            await self.client.sleep(seconds)
            return ()
        self._failures = 0
        return some

    def _may_pass(self, error: Exception) -> bool:
        is_lasting = isinstance(error, RelayRejected) and final(error.code)
        is_open = self.answer is not None and self.client.clock() * 1000 < self.answer.expires_at_ms
        return is_open and not is_lasting

    def _token_behind(self) -> str:
        """The token behind all messages of the last answer. An older token would repeat messages; a
        token that is used before its messages are taken would leave a gap. By push, only EOSE
        brings a token."""
        return "" if self.is_push or self.answer is None else self.answer.resumption_token

    async def _pulled(self) -> Sequence[Message]:
        after = None if self._seen is None else self._seen[0]
        metadata = self.client.metadata(pull=self._most(), after=after)
        req = Req(self.id, (), Payment(), metadata)
        try:
            return await self._ask(req, 0)
        except RelayRejected as refused:
            if refused.error in ("expired", "subscription_not_found"):
                self.is_over = True
                self.handlers.closed(refused.message)
                return ()
            raise

    def _most(self) -> int:
        """The number of events to ask for. With automatic top-ups, they leave enough credit that
        the relay warns before it ends the subscription."""
        if not self.auto_top_up or self.answer is None or not self._event_fee:
            return PULL_MAX
        paid = self.answer.credit // self._event_fee
        return min(PULL_MAX, max(1, paid - LOW_CREDIT_FEES + 1))

    async def _pushed(self) -> Sequence[Message]:
        assert self.client.inbox is not None
        data = await self.client.inbox.take(self.client.relay.pubkey, self.id)
        return [decode(each) for each in data]

    async def _ask(self, req: Req, amount: int) -> Sequence[Message]:
        data = await self.client.exchange(req, amount)
        read = read_req_answer(data)
        self.answer = read.answer
        return read.messages

    def _follow_credit(self, message: Message) -> None:
        """By push, no answer states the credit: it follows from the fees that events state. What is
        drawn from the purse shows at the next answer."""
        position, answer = message.metadata.position, self.answer
        if not self.is_push or answer is None or position is None or position <= answer.position:
            return
        fee = message.payment.amount if isinstance(message, EventMessage) else 0
        self.answer = replace(answer, credit=max(0, answer.credit - fee), position=position)

    def _is_new(self, message: Message) -> bool:
        """Whether the message is new and its event is validly signed. EOSE may have the position of
        the event before it."""
        position = message.metadata.position
        if position is not None:
            place = position, isinstance(message, Eose)
            if self._seen is not None and place <= self._seen:
                return False
            self._seen = place
        if isinstance(message, EventMessage):
            try:
                verify(message.event)
            except InvalidEvent:
                return False
        return True

    async def _heed(self, message: Message) -> None:
        if isinstance(message, Eose):
            self.resumption_token = message.resumption_token or self.resumption_token
            self.handlers.eose(message)
        elif isinstance(message, Closed):
            self.is_over = True
            if self.is_push:
                await self._ask_where_it_ended()
            self.handlers.closed(message.reason)
        elif isinstance(message, Notice):
            self.handlers.notice(message.message)
            if message.message.startswith(_LITTLE_CREDIT):
                await self._refill()
            elif message.message.startswith(_NO_CREDIT):  # the subscription has ended
                self.handlers.payment_request(self._event_fee)

    async def _ask_where_it_ended(self) -> None:
        """Ask for the last position. By push, EOSE brought the last token. CLOSED comes after all
        events, so the subscription's last position is also ours."""
        with suppress(NoAnswer, RelayRejected):
            self.resumption_token = (await self.status()).resumption_token

    async def _refill(self) -> None:
        """Little credit is left: pay for more, or report the price of the next event."""
        is_affordable = self.max_spend is None or self.spent + self.auto_top_up <= self.max_spend
        if self.auto_top_up and is_affordable:
            try:
                await self.top_up(self.auto_top_up)
            except (NoAnswer, RelayRejected, SpendLimit) as error:
                self.handlers.trouble(f"the top-up failed: {error}")
            else:
                return
        self.handlers.payment_request(self._event_fee)

    @property
    def _event_fee(self) -> int:
        return 0 if self.answer is None else self.answer.event_fee

    def resume_behind(self, position: Position, token: str) -> None:
        """Take no message up to this position, which the token names."""
        self._seen = position, False
        self.resumption_token = token

    def _check_spend(self, amount: int) -> None:
        if self.max_spend is not None and self.spent + amount > self.max_spend:
            raise SpendLimit(
                f"expected to spend at most {self.max_spend}, got {self.spent + amount}"
            )


async def unique(*subscriptions: Subscription) -> AsyncIterator[Event]:
    """The events of several subscriptions as they come, each event once. No subscription reads
    ahead of the caller, so its resumption token leaves no gap. If one fails, the others go on; the
    first failure is raised when all are over."""
    queue: asyncio.Queue[tuple[Event, asyncio.Event] | None] = asyncio.Queue()
    seen: set[str] = set()
    failures: list[Exception] = []

    async def read(one: Subscription) -> None:
        try:
            async for event in one:
                taken = asyncio.Event()
                await queue.put((event, taken))
                await taken.wait()
        except Exception as error:
            failures.append(error)
            if len(subscriptions) > 1:
                one.handlers.trouble(f"{one.id} has ended: {error}")
        finally:
            await queue.put(None)

    tasks = [asyncio.create_task(read(each)) for each in subscriptions]
    left = len(tasks)
    try:
        while left:
            found = await queue.get()
            if found is None:
                left -= 1
                continue
            event, taken = found
            if event.id not in seen:
                seen.add(event.id)
                yield event
            taken.set()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if failures:
        raise failures[0]


def _details(data: bytes) -> dict[str, Any]:
    try:
        details = orjson.loads(data)
    except orjson.JSONDecodeError:
        return {}
    return details if type(details) is dict else {}


def _missing(refused: RelayRejected, sent: int) -> int:
    """The fees that connectors have kept, if the relay says that too little has arrived; else 0."""
    if refused.error != PaymentInsufficient.error:
        return 0
    short = shortfall(refused.reject)
    return 0 if short is None or short.received >= sent else short.missing
