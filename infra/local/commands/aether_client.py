"""Aether for `farthing post --aether` and `farthing watch --aether`."""

import json
import sys
import time
from argparse import Namespace
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import aiohttp
import urllib3

from farthing.aether import keys, messages, toon
from farthing.aether.events import Event, sign_event
from farthing.aether.messages import SUBPROTOCOL
from farthing.aws.outbound import HttpOutbound
from farthing.connector.client import NotPayable, PreparedPayment, pay, utc_now
from farthing.ilp.packet import Prepare, Reject, to_milliseconds
from farthing.ports.hosts import ANYWHERE
from farthing.settings import Settings
from infra.local.commands.paying import author_secret, connector_token
from infra.local.commands.relay_address import http_url, web_url
from infra.local.commands.terminal import moment, plain, row

_TIMEOUT = 30
_PACKET_LIFE = timedelta(seconds=30)
_SECOND = 10**9


def signed(arguments: Namespace, secret: bytes) -> Event:
    """An event, signed with the Aether key that is derived from a Nostr key."""
    content = sys.stdin.read() if arguments.text == "-" else arguments.text
    tags = [tag.split("=", 1)[:1] + tag.split("=", 1)[1].split(",") for tag in arguments.tag]
    return sign_event(
        keys.owner_seed(secret), kind=arguments.kind, content=content, tags=tags,
        created_at=time.time_ns(),
    )  # fmt: skip


def post(arguments: Namespace, settings: Settings) -> int:
    event = signed(arguments, author_secret(arguments, settings))
    relay = http_url(web_url(arguments, settings))
    row("event", event.id)
    row("author", event.pubkey)
    body: dict[str, Any] = {"event": event.as_dict()}
    if arguments.capability:
        body["capability"] = _chain(arguments.capability)
    status, answer = _ask(f"{relay}/v1/events", body)
    if status == 402 and "quote" in answer:
        return _pay(arguments, settings, event, answer["quote"])
    if status != 200:
        row("refused", f"{answer.get('error')}: {answer.get('message')}")
        return 1
    row("stored", str(answer["message"]))
    return 0


def _chain(text: str) -> list[Any]:
    """A token, or a chain of tokens, root first."""
    value = json.loads(text)
    return value if isinstance(value, list) else [value]


def _ask(url: str, body: object) -> tuple[int, dict[str, Any]]:
    headers = {"Content-Type": "application/json"}
    try:
        response = urllib3.request(
            "POST", url, body=json.dumps(body).encode(), headers=headers, timeout=_TIMEOUT,
            retries=False, redirect=False,
        )  # fmt: skip
        answer = response.json()
    except (urllib3.exceptions.HTTPError, ValueError) as error:
        raise NotPayable(f"no answer from the relay: {error}") from None
    if not isinstance(answer, dict):
        raise NotPayable(f"expected a JSON object, got HTTP {response.status} without one")
    return response.status, answer


def _pay(arguments: Namespace, settings: Settings, event: Event, quote: Mapping[str, Any]) -> int:
    price = int(quote["price"])
    most = arguments.max_price
    if most is None:
        most = 10 ** max(0, int(quote["asset_scale"]) - 2)
    unit = f"{quote['asset_code']}/1e{quote['asset_scale']}"
    row("price", f"{price} {unit}")
    if price > most and arguments.amount is None:
        raise NotPayable(f"the relay asks {price}, more than the {most} allowed: --max-price")
    endpoint = arguments.connector or str(quote["endpoint"])
    token = connector_token(arguments, settings, endpoint)
    amount = price if arguments.amount is None else arguments.amount
    prepare = Prepare(
        amount, to_milliseconds(utc_now() + _PACKET_LIFE), bytes.fromhex(quote["condition"]),
        str(quote["destination"]), toon.dumps(event),
    )  # fmt: skip
    fees = amount if arguments.max_fees is None else arguments.max_fees
    payment = PreparedPayment(prepare, None)
    sent, reply = pay(HttpOutbound(ANYWHERE), endpoint, token, payment, fees)
    if isinstance(reply, Reject):
        row("rejected", f"{reply.code} {reply.message} (by {reply.triggered_by or 'unknown'})")
        return 1
    row("paid", f"{sent.amount} {unit} to {quote['destination']}")
    row("stored", "by packet")
    return 0


class WatchFailed(Exception):
    """The relay ended the subscription."""


async def watch(relay: str, filter: dict[str, Any], as_json: bool) -> None:
    url = f"{relay.rstrip('/')}/v1/ws"
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(url, protocols=[SUBPROTOCOL]) as socket,
    ):
        await socket.send_str(messages.subscribe("watch", [filter]).octets.decode())
        async for frame in socket:
            message = json.loads(frame.data)
            if message["type"] == "event":
                event = message["event"]
                print(json.dumps(event) if as_json else _line(event), flush=True)
            elif message["type"] == "error":
                raise WatchFailed(str(message["message"]))
    raise WatchFailed("the relay closed the connection")


def _line(event: Mapping[str, Any]) -> str:
    content = plain(str(event.get("content", event.get("content_b64", ""))))
    text = " ".join(content.split())
    when, who = moment(int(event["created_at"]) // _SECOND), plain(str(event["pubkey"]))[:8]
    return f"{when}  {who}  kind {event['kind']:<5}  {text[:100]}"
