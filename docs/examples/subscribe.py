"""Pay Farthing relays for a subscription, and print its events, each once.

    NOSTR_SECRET_KEY=<64 hex digits> FARTHING_TOKEN=<bearer token> \\
        python docs/examples/subscribe.py '{"kinds":[1]}' http://127.0.0.1:7777 --amount 5000

The token is for the connector that takes the packets: the one that is named, or the first relay's.
"""

import argparse
import asyncio
import json
import os
import sys

import urllib3

from farthing.agent.subscription_client import (
    Handlers,
    NoAnswer,
    Relay,
    Subscription,
    SubscriptionClient,
    unique,
)
from farthing.aws.outbound import HttpOutbound
from farthing.btp_nips.models import Model
from farthing.connector.client import RelayTerms, terms_from_information
from farthing.connector.exchange import exchange
from farthing.ilp.packet import Fulfill, Prepare, Reject
from farthing.nostr.filters import Filter, parse_filter
from farthing.ports.hosts import ANYWHERE
from farthing.ports.outbound import OutboundFailed

_SECONDS = 40.0


class HttpCarrier:
    """Brings packets to a connector by HTTP."""

    def __init__(self, endpoint: str, token: str) -> None:
        self._outbound = HttpOutbound(ANYWHERE)
        self._endpoint = endpoint
        self._token = token

    async def send(self, prepare: Prepare) -> Fulfill | Reject:
        wanted = self._outbound, self._endpoint, self._token, prepare, _SECONDS
        try:
            return await asyncio.to_thread(exchange, *wanted)
        except OutboundFailed as error:
            raise NoAnswer(str(error)) from None


def terms_of(relay: str) -> RelayTerms:
    """Where the relay is paid, from its information document (NIP-11)."""
    headers = {"Accept": "application/nostr+json"}
    return terms_from_information(urllib3.request("GET", relay, headers=headers).json())


async def subscribe(
    carrier: HttpCarrier, terms: RelayTerms, filter: Filter, options: argparse.Namespace
) -> Subscription:
    relay = Relay(terms.destination, terms.pubkey)
    client = SubscriptionClient(relay, bytes.fromhex(os.environ["NOSTR_SECRET_KEY"]), carrier)
    handlers = Handlers(
        eose=lambda eose: say(f"{eose.event_count} stored events"),
        payment_request=lambda fee: say(f"little credit is left: the next event costs {fee}"),
        closed=say,
    )
    return await client.subscribe(
        [filter], options.amount, ttl=options.ttl, model=options.model, handlers=handlers
    )


async def run(options: argparse.Namespace) -> None:
    filter = parse_filter(json.loads(options.filter))
    all_terms = [terms_of(relay) for relay in options.relays]
    carrier = HttpCarrier(options.connector or all_terms[0].endpoint, os.environ["FARTHING_TOKEN"])
    subscriptions = [await subscribe(carrier, terms, filter, options) for terms in all_terms]
    printed = 0
    async for event in unique(*subscriptions):
        print(event.to_json(), flush=True)
        printed += 1
        if printed == options.events:
            break
    for each in subscriptions:
        if not each.is_over:
            say(f"{await each.close()} returned to the purse")


def say(text: str) -> None:
    print(text, file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description="Pay relays for a subscription.")
    parser.add_argument("filter", help="a NIP-01 filter, as JSON")
    parser.add_argument("relays", nargs="+", help="https or http URLs of relays")
    parser.add_argument("--amount", type=int, required=True, help="what each relay is paid")
    parser.add_argument("--model", type=Model, help="free, one_time, streaming or hybrid")
    parser.add_argument("--ttl", type=int, help="seconds")
    parser.add_argument("--connector", default="", help="URL that takes the packets")
    parser.add_argument("--events", type=int, help="close after so many events")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
