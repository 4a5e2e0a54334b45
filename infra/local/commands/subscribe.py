"""`farthing subscribe`: a paid subscription. Prints one line per event, and the credit and time.

By pull, any key can subscribe, at any relay. By push, the relay sends events to our own agent,
whose server keeps them until they are printed; a push subscription needs the owner's key.
"""

import asyncio
import json
import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import Any

import aiohttp

from farthing.agent.subscription_client import (
    Handlers,
    NoAnswer,
    Relay,
    RelayRejected,
    SpendLimit,
    Subscription,
    SubscriptionClient,
    unique,
)
from farthing.aws.outbound import HttpOutbound
from farthing.btp_nips.answers import ReqAnswer
from farthing.btp_nips.models import Model
from farthing.connector.client import NotPayable
from farthing.connector.exchange import PaymentFailed, exchange
from farthing.context import Agent
from farthing.ilp.packet import Fulfill, Prepare, Reject
from farthing.nostr.events import Event
from farthing.nostr.filters import Filter, InvalidFilter, parse_filter
from farthing.ports.hosts import ANYWHERE
from farthing.ports.outbound import OutboundFailed
from farthing.settings import Settings
from farthing.store.outgoing_subscriptions import Outgoing, Waiting
from infra.local.commands.bookkeeping import offline_agent
from infra.local.commands.paying import (
    add_connector_arguments,
    ask_for_quote,
    author_secret,
    connector_token,
    relay_terms,
)
from infra.local.commands.relay_address import http_url, relay
from infra.local.commands.terminal import event_line, filter_json, plain, row, whole_number
from infra.local.server.identity import with_identity

_PACKET_SECONDS = 40.0
_CREDIT_FEES = 100  # events that are paid for if no amount is given

ERRORS = (
    NotPayable, PaymentFailed, OutboundFailed, NoAnswer, RelayRejected, SpendLimit, InvalidFilter,
    aiohttp.ClientError,
)  # fmt: skip


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--filter", action="append", default=[], type=filter_json,
        help="a NIP-01 filter, as JSON; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--relay", action="append", default=[], type=relay,
        help="WebSocket URL; the local one if left out. Of several relays, each event comes once.",
    )  # fmt: skip
    parser.add_argument(
        "--model", choices=[model.value for model in Model], help="how to pay: one_time if left out"
    )
    parser.add_argument(
        "--amount", type=whole_number,
        help="amount to pay; if left out, the price, plus 100 events if each is paid for",
    )  # fmt: skip
    parser.add_argument("--ttl", type=whole_number, help="seconds; the relay's default if left out")
    add_connector_arguments(parser)
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--pull", action="store_true", help="ask for events (the default)")
    way.add_argument("--push", action="store_true", help="have events sent to our own agent")
    parser.add_argument("--max-spend", type=whole_number, help="most to pay in all")
    parser.add_argument(
        "--auto-top-up", type=whole_number, default=0, metavar="AMOUNT",
        help="pay this much more whenever little credit is left",
    )  # fmt: skip
    parser.add_argument(
        "--resume", metavar="TOKEN",
        help="continue where this token stands: free of charge while --id is open",
    )  # fmt: skip
    parser.add_argument("--id", default="", help="name of the subscription; random if left out")
    parser.add_argument("--owner", action="store_true", help="subscribe with the owner's key")
    parser.add_argument("--json", action="store_true", help="print whole events, one per line")
    act = parser.add_mutually_exclusive_group()
    act.add_argument("--status", action="store_true", help="only show the state of --id")
    act.add_argument("--top-up", type=whole_number, metavar="AMOUNT", help="pay more for --id")
    act.add_argument("--close", action="store_true", help="end --id; credit goes to the purse")


def run(arguments: Namespace, settings: Settings) -> int:
    acts_on_one = arguments.status or arguments.close or arguments.top_up is not None
    if acts_on_one and not arguments.id:
        raise NotPayable("--status, --top-up and --close need the --id of a subscription")
    with suppress(KeyboardInterrupt):
        work = _act if acts_on_one else _follow
        return asyncio.run(work(arguments, settings))
    return 0


class HttpCarrier:
    """Packets to a connector by HTTP."""

    def __init__(self, endpoint: str, token: str) -> None:
        self._outbound = HttpOutbound(ANYWHERE)
        self._endpoint = endpoint
        self._token = token

    async def send(self, prepare: Prepare) -> Fulfill | Reject:
        try:
            return await asyncio.to_thread(
                exchange, self._outbound, self._endpoint, self._token, prepare, _PACKET_SECONDS
            )
        except OutboundFailed as error:
            raise NoAnswer(str(error)) from None


class LocalInbox:
    """The events that our own server has received for a subscription."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._shown: Sequence[Waiting] = ()

    async def expect(self, relay: str, subscription_id: str, until: int) -> None:
        outgoing = self._agent.outgoing_subscriptions
        await asyncio.to_thread(outgoing.note, Outgoing(relay, subscription_id), until)

    async def take(self, relay: str, subscription_id: str) -> Sequence[bytes]:
        return await asyncio.to_thread(self._take, relay, subscription_id)

    def _take(self, relay: str, subscription_id: str) -> list[bytes]:
        """The waiting events. The events of the call before are removed now: they are printed."""
        outgoing = self._agent.outgoing_subscriptions
        if self._shown:
            outgoing.take(relay, subscription_id, self._shown)
        self._shown = list(outgoing.inbox(relay, subscription_id))
        return [each.data for each in self._shown]


@asynccontextmanager
async def _client(
    arguments: Namespace, settings: Settings, url: str
) -> AsyncIterator[SubscriptionClient]:
    terms = await asyncio.to_thread(relay_terms, url)
    endpoint = arguments.connector or terms.endpoint
    token = connector_token(arguments, settings, endpoint)
    arguments.owner = arguments.owner or arguments.push
    secret = author_secret(arguments, settings)
    carrier = HttpCarrier(endpoint, token)
    to = Relay(terms.destination, terms.pubkey)
    if not arguments.push:
        yield SubscriptionClient(to, secret, carrier)
        return
    with offline_agent(settings) as agent:
        address = with_identity(settings).own_ilp_address
        yield SubscriptionClient(to, secret, carrier, LocalInbox(agent), address)


def _http(relay: str, settings: Settings) -> str:
    """The URL of a relay that was named, or of the local one."""
    return http_url(relay) if relay else settings.http_url


async def _act(arguments: Namespace, settings: Settings) -> int:
    """Send one message about a subscription, and print the answer."""
    url = _http(arguments.relay[0] if arguments.relay else "", settings)
    async with _client(arguments, settings, url) as client:
        one = client.of_id(arguments.id, max_spend=arguments.max_spend)
        if arguments.close:
            returned = await one.close()
            row("closed", arguments.id)
            row("returned", f"{returned} to the purse")
            return 0
        if arguments.top_up is not None:
            await one.top_up(arguments.top_up, arguments.ttl)
        else:
            await one.status()
        assert one.answer is not None
        _show(one.answer, client)
    return 0


def _show(answer: ReqAnswer, client: SubscriptionClient) -> None:
    row("id", answer.subscription_id)
    row("status", answer.state)
    row("model", f"{answer.model}, {answer.event_fee} for each event")
    row("credit", str(answer.credit))
    row("time left", _time_left(answer, client))
    row("position", str(answer.position))
    row("token", answer.resumption_token)


async def _follow(arguments: Namespace, settings: Settings) -> int:
    filters = _filters(arguments)
    opened: list[tuple[str, Subscription]] = []
    async with AsyncExitStack() as stack:
        try:
            for given in arguments.relay or [""]:
                url = _http(given, settings)
                with _passing_over(url, is_one_of_many=len(arguments.relay) > 1):
                    client = await stack.enter_async_context(_client(arguments, settings, url))
                    opened.append((given, await _open(arguments, client, url, filters)))
            if not opened:
                raise NotPayable("no relay has opened a subscription")
            subscriptions = [subscription for _, subscription in opened]
            async for event in unique(*subscriptions):
                _print(event, arguments.json)
                _say_left(subscriptions)
        finally:
            for given, each in opened:
                if not each.is_over:
                    _say(f"{each.id} stays open: {_state(each)}")
                _say(how_to_resume(arguments, each, given))
    return 0


@contextmanager
def _passing_over(url: str, *, is_one_of_many: bool) -> Iterator[None]:
    """If one of several relays fails, the others are used."""
    try:
        yield
    except ERRORS as error:
        if not is_one_of_many:
            raise
        _say(f"{url} is left out: {error}")


def _filters(arguments: Namespace) -> list[Filter]:
    return [parse_filter(json.loads(text)) for text in arguments.filter or ["{}"]]


async def _open(
    arguments: Namespace,
    client: SubscriptionClient,
    url: str,
    filters: Sequence[Filter],
) -> Subscription:
    if arguments.resume and arguments.id:
        going = await client.go_on(
            arguments.id, filters, arguments.resume, push=arguments.push,
            max_spend=arguments.max_spend, auto_top_up=arguments.auto_top_up, handlers=_handlers(),
        )  # fmt: skip
        if going is not None:
            _say(f"going on with {going.id} at {url}, nothing was paid: {_state(going)}")
            return going
    amount = arguments.amount
    if amount is None:
        amount = await asyncio.to_thread(_price, arguments, url, filters)
    subscription = await client.subscribe(
        filters, amount, id=arguments.id, ttl=arguments.ttl,
        model=None if arguments.model is None else Model(arguments.model), push=arguments.push,
        resume=arguments.resume, max_spend=arguments.max_spend,
        auto_top_up=arguments.auto_top_up, handlers=_handlers(),
    )  # fmt: skip
    assert subscription.answer is not None
    _say(f"subscribed {subscription.id} at {url}: {_state(subscription)}")
    return subscription


def _price(arguments: Namespace, url: str, filters: Sequence[Filter]) -> int:
    """The lowest amount, plus credit for some events if each is paid for."""
    wanted: dict[str, Any] = {"filters": [filter.as_dict() for filter in filters]}
    wanted |= {"model": arguments.model} if arguments.model else {}
    wanted |= {"ttl": arguments.ttl} if arguments.ttl else {}
    quoted = ask_for_quote(url, {"subscription": wanted})
    try:
        return int(quoted["price"]) + _CREDIT_FEES * int(quoted["event_fee"])
    except (KeyError, TypeError, ValueError):
        raise NotPayable("expected a price and an event_fee in the relay's quote") from None


def _handlers() -> Handlers:
    return Handlers(
        eose=lambda eose: _say(f"{eose.event_count} stored events, new ones follow"),
        notice=lambda text: _say(f"notice: {text}"),
        payment_request=lambda fee: _say(f"little credit is left: the next event costs {fee}"),
        closed=lambda reason: _say(f"closed: {reason}"),
        trouble=lambda text: _say(f"trouble: {text}"),
    )


def _print(event: Event, as_json: bool) -> None:
    fields = event.as_dict()
    print(json.dumps(fields) if as_json else event_line(fields), flush=True)


def _say_left(subscriptions: Sequence[Subscription]) -> None:
    if sys.stderr.isatty():
        _say(", ".join(_state(each) for each in subscriptions))


def _state(subscription: Subscription) -> str:
    answer = subscription.answer
    if answer is None:
        return "no answer yet"
    return f"credit {answer.credit}, {_time_left(answer, subscription.client)} left"


def _time_left(answer: ReqAnswer, client: SubscriptionClient) -> str:
    seconds = max(0, answer.expires_at_ms // 1000 - int(client.clock()))
    return f"{seconds // 60} min {seconds % 60} s"


def how_to_resume(arguments: Namespace, subscription: Subscription, url: str) -> str:
    """The command that continues the subscription: free of charge while it is open, afterwards at
    the full price. A token is valid only at the relay that issued it, so each relay gets a command
    of its own."""
    words = ["farthing", "subscribe"]
    for text in arguments.filter:
        words += ["--filter", text]
    for name in ("model", "amount", "ttl", "connector", "max_spend", "auto_top_up"):
        value = getattr(arguments, name)
        is_given = value not in (None, "") and (value or name != "auto_top_up")
        words += [f"--{name.replace('_', '-')}", str(value)] if is_given else []
    words += ["--relay", url] if url else []
    words += ["--push"] if arguments.push else ["--owner"] if arguments.owner else []
    words += ["--json"] if arguments.json else []
    words += ["--id", subscription.id, "--resume", subscription.resumption_token]
    secret = ", with the same --token" if arguments.token else ""
    return f"to go on{secret}: {shlex.join(words)}"


def _say(text: str) -> None:
    print(plain(text), file=sys.stderr, flush=True)
