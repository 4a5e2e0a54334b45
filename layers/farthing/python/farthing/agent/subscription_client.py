"""A client of paid subscriptions: subscribe, iterate over events, pay for more, close.

It knows no network: a `Carrier` brings packets to the relay, and an `Inbox` has what was pushed to
this agent. A message whose answer is lost is sent again as it is, and has its effect once.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from secrets import randbelow, token_hex
from typing import Any, Final, Protocol

import orjson

from farthing.btp_nips.answers import ReqAnswer, read_req_answer
from farthing.btp_nips.codec import decode, encode
from farthing.btp_nips.errors import PaymentInsufficient
from farthing.btp_nips.fees import LOW_CREDIT
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
    Model,
    Notice,
    Payment,
    Purpose,
    Req,
)
from farthing.btp_nips.positions import Position
from farthing.ilp.condition import author_fulfillment, condition_of
from farthing.ilp.packet import Fulfill, Prepare, Reject, to_milliseconds
from farthing.nostr.events import Event, InvalidEvent, public_key_of, verify
from farthing.nostr.filters import Filter

_EXPIRY: Final = timedelta(seconds=30)
_ATTEMPTS: Final = 4
_WAIT_SECONDS: Final = 0.5
# How the texts of NOTICE begin that ask for money.
_ABOUT_CREDIT: Final = (f"[{LOW_CREDIT}]", f"[{PaymentInsufficient.error}]")


class NoAnswer(Exception):
    """No reply came to a packet. Whether it has arrived is unknown."""


class Refused(Exception):
    """The relay, or somebody on the way to it, has rejected a message."""

    def __init__(self, reject: Reject) -> None:
        super().__init__(f"{reject.code} {reject.message}")
        self.code = str(reject.code)
        self.message = reject.message
        self.details = _details(reject.data)

    @property
    def error(self) -> str:
        """The name of the error, empty where a connector has none."""
        return str(self.details.get("error", ""))


class SpendLimit(Exception):
    """What is asked for is more than may be spent."""


class Carrier(Protocol):
    async def send(self, prepare: Prepare) -> Fulfill | Reject:
        """Bring a packet to its destination. Raises NoAnswer; a Fulfill is a true one."""
        ...


class Inbox(Protocol):
    """What was pushed to this agent for one subscription."""

    async def expect(self, relay: str, subscription_id: str, until: int) -> None:
        """Have deliveries fulfilled from now on."""
        ...

    async def take(self, relay: str, subscription_id: str) -> Sequence[bytes]:
        """The messages that have come since, as the data of their packets. Empty after a while."""
        ...


@dataclass(frozen=True, slots=True)
class Relay:
    destination: str  # its ILP address
    pubkey: str


@dataclass
class Handlers:
    """What is called when a subscription has news that are no events."""

    eose: Callable[[Eose], object] = lambda _: None
    notice: Callable[[str], object] = lambda _: None
    payment_request: Callable[[int], object] = lambda _: None  # what the next event costs
    closed: Callable[[str], object] = lambda _: None


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
        """Open a subscription, or go on with one of this id."""
        made = Subscription(
            self, id or f"sub-{token_hex(8)}", is_push=push, max_spend=max_spend,
            auto_top_up=auto_top_up, handlers=handlers or Handlers(),
        )  # fmt: skip
        metadata: dict[str, Any] = {"delivery": Delivery.PUSH if push else Delivery.PULL}
        if push:
            if self.inbox is None or not self.reply_to:
                raise ValueError("push needs an inbox and an address")
            until = int(self.clock()) + (ttl or 86400)
            await self.inbox.expect(self.relay.pubkey, made.id, until)
            metadata["reply_to"] = self.reply_to
        await made.pay(amount, filters, ttl=ttl, model=model, token=resume, window=window,
                       **metadata)  # fmt: skip
        return made

    def of_id(self, id: str, *, push: bool = False, **options: Any) -> "Subscription":
        """A subscription that was opened before."""
        return Subscription(self, id, is_push=push, **options)

    async def exchange(self, message: Message, amount: int) -> bytes:
        """The data of the answer. Sends the very same data again where no answer comes."""
        data = encode(message)
        for attempt in range(_ATTEMPTS):
            try:
                reply = await self.carrier.send(self._packet(data, amount))
            except NoAnswer:
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                if isinstance(reply, Reject):
                    raise Refused(reply)
                return reply.data
            await self.sleep(_WAIT_SECONDS * 2**attempt)
        raise NoAnswer("no answer")

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
        # Two messages of one second would otherwise be one message.
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
    spent: int = 0  # what we have paid
    answer: ReqAnswer | None = None  # the relay's last word on how it stands
    is_over: bool = False
    resumption_token: str = ""
    _after: Position | None = None

    async def pay(
        self,
        amount: int,
        filters: Sequence[Filter] = (),
        *,
        model: Model | None = None,
        token: str | None = None,
        **metadata: Any,
    ) -> ReqAnswer:
        """A REQ with money. What connectors keep on the way is added, within what may be spent."""
        sent = amount
        for _ in range(_ATTEMPTS):
            self._check_spend(sent)
            payment = Payment(sent, purpose=Purpose.SUBSCRIPTION, model=model)
            given = {name: value for name, value in metadata.items() if value is not None}
            req = Req(self.id, tuple(filters), payment, self.client.metadata(**given), token)
            try:
                await self._ask(req, sent)
            except Refused as refused:
                missing = _missing(refused, sent)
                if not missing:
                    raise
                sent += missing
                continue
            self.spent += sent
            assert self.answer is not None
            return self.answer
        raise SpendLimit(f"connectors on the way keep too much of {sent}")

    async def top_up(self, amount: int, ttl: int | None = None) -> ReqAnswer:
        return await self.pay(amount, ttl=ttl)

    async def status(self) -> ReqAnswer:
        await self._ask(Req(self.id, (), Payment(), self.client.metadata()), 0)
        assert self.answer is not None
        return self.answer

    async def close(self) -> int:
        """What has gone back to the purse."""
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
        """Everything that the relay has to say, in its order."""
        while not self.is_over:
            some = await (self._pushed() if self.is_push else self._pulled())
            for message in some:
                if not self._is_new(message):
                    continue
                await self._heed(message)
                yield message
            if not some and not self.is_over:
                await self.client.sleep(self.poll_seconds)

    async def _pulled(self) -> Sequence[Message]:
        metadata = self.client.metadata(pull=PULL_MAX, after=self._after)
        req = Req(self.id, (), Payment(), metadata)
        try:
            return await self._ask(req, 0)
        except Refused as refused:
            if refused.error in ("expired", "subscription_not_found"):
                self.is_over = True
                self.handlers.closed(refused.message)
                return ()
            raise

    async def _pushed(self) -> Sequence[Message]:
        assert self.client.inbox is not None
        data = await self.client.inbox.take(self.client.relay.pubkey, self.id)
        return [decode(each) for each in data]

    async def _ask(self, req: Req, amount: int) -> Sequence[Message]:
        data = await self.client.exchange(req, amount)
        read = read_req_answer(data)
        self.answer = read.answer
        self.resumption_token = read.answer.resumption_token
        return read.messages

    def _is_new(self, message: Message) -> bool:
        """Whether the message was not seen yet, and is what its author has signed."""
        position = message.metadata.position
        if position is not None:
            if self._after is not None and position <= self._after:
                return False
            self._after = position
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
            self.handlers.closed(message.reason)
        elif isinstance(message, Notice):
            self.handlers.notice(message.message)
            if message.message.startswith(_ABOUT_CREDIT):
                await self._refill()

    async def _refill(self) -> None:
        """Little credit is left: pay for more, or say what it takes."""
        fee = self.answer.event_fee if self.answer is not None else 0
        is_affordable = self.max_spend is None or self.spent + self.auto_top_up <= self.max_spend
        if self.auto_top_up and is_affordable:
            await self.top_up(self.auto_top_up)
        else:
            self.handlers.payment_request(fee)

    def _check_spend(self, amount: int) -> None:
        if self.max_spend is not None and self.spent + amount > self.max_spend:
            raise SpendLimit(f"{self.spent + amount} would be spent, at most {self.max_spend} may")


async def unique(*subscriptions: Subscription) -> AsyncIterator[Event]:
    """The events of several subscriptions, each event once, as they come."""
    queue: asyncio.Queue[Event | None] = asyncio.Queue(maxsize=100)
    seen: set[str] = set()

    async def read(one: Subscription) -> None:
        try:
            async for event in one:
                await queue.put(event)
        finally:
            await queue.put(None)

    tasks = [asyncio.create_task(read(each)) for each in subscriptions]
    left = len(tasks)
    try:
        while left:
            event = await queue.get()
            if event is None:
                left -= 1
            elif event.id not in seen:
                seen.add(event.id)
                yield event
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _details(data: bytes) -> dict[str, Any]:
    try:
        details = orjson.loads(data)
    except orjson.JSONDecodeError:
        return {}
    return details if type(details) is dict else {}


def _missing(refused: Refused, sent: int) -> int:
    """What connectors have kept, where the relay says that too little has arrived; else 0."""
    if refused.error != PaymentInsufficient.error:
        return 0
    try:
        price, received = int(refused.details["price"]), int(refused.details["received"])
    except (KeyError, TypeError, ValueError):
        return 0
    return price - received if received < sent and price > received else 0
