"""`farthing post`: sign an event, pay for it in one packet, and print the result."""

import asyncio
import json
import sys
import time
from argparse import ArgumentParser, Namespace

from farthing.aws.outbound import HttpOutbound
from farthing.connector.client import (
    NotPayable,
    PreparedPayment,
    RelayTerms,
    pay,
    prepare_payment,
    utc_now,
)
from farthing.ilp.money import readable, with_units
from farthing.ilp.packet import Fulfill, Reject
from farthing.nostr.events import Event
from farthing.nostr.nip19 import Note, encode
from farthing.ports.hosts import ANYWHERE
from farthing.settings import Settings
from infra.local.commands.paying import ERRORS as ERRORS
from infra.local.commands.paying import (
    add_connector_arguments,
    add_event_arguments,
    ask,
    author_secret,
    connector_token,
    highest_price,
    price_line,
    relay_terms,
    signed,
)
from infra.local.commands.relay_address import http_url, is_own, relay_url, web_url
from infra.local.commands.terminal import plain, row, whole_number
from infra.local.server.identity import with_identity


def add_arguments(parser: ArgumentParser) -> None:
    add_event_arguments(parser)
    add_connector_arguments(parser)
    parser.add_argument(
        "--purse",
        action="store_true",
        help="publish by WebSocket, log in, and pay from the key's purse at the relay",
    )
    parser.add_argument(
        "--aether",
        action="store_true",
        help="post an Aether event, signed with the Aether key derived from the same key",
    )
    parser.add_argument(
        "--capability", default="", help="a capability that pays for an Aether event, as JSON"
    )
    parser.add_argument("--amount", type=whole_number, help="pay this instead of the price")
    parser.add_argument(
        "--broadcast",
        action="store_true",
        help="send the owner's event to other relays as well, as `farthing broadcast` does",
    )
    parser.add_argument(
        "--max-price",
        type=whole_number,
        help="highest price to pay, in units; a hundredth of the relay's asset if left out",
    )
    parser.add_argument(
        "--max-fees",
        type=whole_number,
        help="most that connectors on the way may keep; as much as the price if left out",
    )


def run(arguments: Namespace, settings: Settings) -> int:
    if arguments.aether:
        # Imported here, because its libraries load slowly.
        from infra.local.commands import aether_client

        return aether_client.post(arguments, settings)
    secret = author_secret(arguments, settings)
    event = signed(arguments, secret)
    relay = web_url(arguments, settings)
    is_free = is_own(relay, settings) and event.pubkey == with_identity(settings).pubkey
    if arguments.broadcast and not is_free:
        raise NotPayable("only the owner's events at the owner's relay are broadcast: use --owner")
    row("event", event.id)
    row("note", encode(Note(event.id)))
    if is_free:
        return _store_free(relay, event) or _broadcast(arguments, settings, event)
    if arguments.purse:
        return _publish_from_purse(relay_url(arguments, settings), event, secret)
    terms = relay_terms(relay)
    endpoint = arguments.connector or terms.endpoint
    token = connector_token(arguments, settings, endpoint)
    row("price", price_line(terms, event))
    started = time.perf_counter()
    payment, reply = _pay(arguments, event, secret, terms, endpoint, token)
    took = f"{(time.perf_counter() - started) * 1000:.0f} ms"
    if isinstance(reply, Reject):
        row("rejected", f"{reply.code} {reply.message} (by {reply.triggered_by or 'unknown'})")
        return 1
    tariff = terms.tariff
    row("paid", f"{payment.amount} {tariff.unit} to {terms.destination}")
    row("in money", readable(payment.amount, tariff.asset_code, tariff.asset_scale))
    row("fulfilment", reply.fulfillment.hex())
    row("stored", f"after {took}")
    return 0


def _store_free(relay: str, event: Event) -> int:
    """The owner's events cost the owner nothing at the owner's relay."""
    body = json.dumps(event.as_dict()).encode()
    answer = ask("POST", f"{http_url(relay)}/v1/events", {"Content-Type": "application/json"}, body)
    row("price", "0: the owner's own events are free")
    row("stored", str(answer.get("message") or "at the owner's relay"))
    return 0


def _broadcast(arguments: Namespace, settings: Settings, event: Event) -> int:
    if not arguments.broadcast:
        return 0
    # Imported here, because few calls need it.
    from infra.local.commands.bookkeeping import offline_agent
    from infra.local.commands.broadcast import FIRST_ATTEMPTS_SECONDS, place

    with offline_agent(settings) as agent:
        return place(agent, event.id, FIRST_ATTEMPTS_SECONDS)


def _publish_from_purse(relay: str, event: Event, secret: bytes) -> int:
    """Publish as any client does; the relay draws the price from the key's purse."""
    # Imported here: a WebSocket client loads slowly, and payments by packet need none.
    from infra.local.commands.remote import RemoteFailed, publish_logged_in

    try:
        accepted, message = asyncio.run(publish_logged_in(relay, event, secret))
    except RemoteFailed as error:
        raise NotPayable(str(error)) from None
    row("stored" if accepted else "refused", message or f"at {relay}")
    return 0 if accepted else 1


def _pay(
    arguments: Namespace,
    event: Event,
    secret: bytes,
    terms: RelayTerms,
    endpoint: str,
    token: str,
) -> tuple[PreparedPayment, Fulfill | Reject]:
    """Pay the price and the fees of connectors on the way; or exactly --amount."""
    payment = prepare_payment(event, secret, terms, utc_now(), arguments.amount)
    fees = 0
    if arguments.amount is None:
        _check_price(arguments, terms, payment.amount)
        fees = payment.amount if arguments.max_fees is None else arguments.max_fees
    return pay(HttpOutbound(ANYWHERE), endpoint, token, payment, fees)


def _check_price(arguments: Namespace, terms: RelayTerms, price: int) -> None:
    """Refuse a price above the user's limit; on a terminal, ask first if no limit was given."""
    tariff = terms.tariff
    most = highest_price(arguments.max_price, tariff.asset_scale)
    if price <= most:
        return
    asked = with_units(price, tariff.asset_code, tariff.asset_scale)
    if arguments.max_price is None and sys.stdin.isatty():
        answer = input(f"The relay's price for this event is {plain(asked)}. Pay it? [y/N] ")
        if answer.strip().lower() in ("y", "yes"):
            return
        raise NotPayable("nothing was paid")
    raise NotPayable(f"the relay asks {asked}, more than the {most} allowed: --max-price {price}")
