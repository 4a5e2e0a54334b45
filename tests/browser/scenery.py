"""A relay with something of everything to see: peers, routes, a purse, subscriptions, reports,
broadcasts, refusals. For pictures of the pages, and for tests of what they show."""

import asyncio
import json
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from farthing.agent.subscription_client import Relay, SubscriptionClient
from farthing.btp_nips.models import Model
from farthing.ilp.packet import Fulfill, Reject
from farthing.nostr.events import public_key_of
from farthing.nostr.filters import parse_filter
from farthing.store.outbox import Delivery, DeliveryState, Outbox
from farthing.store.routes import Route, RoutingTable
from farthing.store.sqlite import SqliteEngine
from infra.local.commands.subscribe import HttpCarrier
from tests.browser.conftest import OWNER
from tests.e2e.authors import Author
from tests.e2e.paying import command, pay, payment_for, terms_of, token_of
from tests.e2e.relay_process import RelayProcess

# Bob and Carol are peers; the others lie behind them.
PEERS = {"bob": bytes([21] * 32), "carol": bytes([22] * 32)}
ROUTES = (
    ("bob", "bob", 100, 1), ("carol", "carol", 40, 1), ("eve", "bob", 180, 2),
    ("frank", "bob", 210, 2), ("grace", "carol", 160, 2), ("heidi", "carol", 350, 3),
)  # fmt: skip
# Notes, and the names of their authors; one has none.
NOTES = (
    ("A farthing was the smallest coin. Here it buys one stored event.", "Ada"),
    ("Spam costs what any other note costs.", ""),
    ("The follow graph is the payment routing graph.", "Grace"),
    ("A picture of the sea:\nhttps://images.example/sea.jpg", "Henry"),
)


def publish(relay: RelayProcess, content: str, author: Author | None = None) -> dict[str, Any]:
    author = author or Author()
    event = author.event(content)
    assert isinstance(pay(relay, payment_for(relay, author, event)), Fulfill)
    return event


def named(relay: RelayProcess, name: str) -> Author:
    author = Author()
    if name:
        profile = author.event(json.dumps({"name": name}), kind=0)
        assert isinstance(pay(relay, payment_for(relay, author, profile)), Fulfill)
    return author


def run(relay: RelayProcess, *arguments: str) -> str:
    done = command(relay, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


def publish_as(relay: RelayProcess, secret: bytes, kind: int, tags: list[list[str]]) -> None:
    author = Author(secret.hex())
    event = author.event("", kind=kind, tags=tags)
    assert isinstance(pay(relay, payment_for(relay, author, event)), Fulfill)


def draw_routes(relay: RelayProcess) -> None:
    """Bob and Carol become peers, and the table in force leads to all others through them."""
    keys = {name: public_key_of(secret) for name, secret in PEERS.items()}
    for name, key in keys.items():
        run(relay, "peers", "add", name, "--pubkey", key, "--address", f"g.agent.{name}",
            "--endpoint", f"http://127.0.0.1:9/{name}", "--max-balance", "1000000000")  # fmt: skip
    publish_as(relay, OWNER, 3, [["p", key] for key in keys.values()])
    table = [
        Route(f"g.agent.{name}", keys.get(name, "c" * 64), keys[hop], fee, hops)
        for name, hop, fee, hops in ROUTES
    ]
    engine = SqliteEngine(relay.data)
    try:
        RoutingTable(engine).replace(
            uuid.uuid4().hex, table, int(time.time()), shrink_percent=100, force=True
        )
    finally:
        engine.close()
    run(relay, "upkeep")


def subscribe(relay: RelayProcess, secret: bytes, id: str, *, pulled: int = 0) -> None:
    """A paid subscription of a key, with credit for a hundred events before `pulled`."""

    async def open_it() -> None:
        carrier = HttpCarrier(f"{relay.http}/ilp", token_of(relay))
        terms = terms_of(relay)
        client = SubscriptionClient(Relay(terms.destination, terms.pubkey), secret, carrier)
        filters = [parse_filter({"kinds": [1]}), parse_filter({"#t": ["farthing"]})]
        made = await client.subscribe(filters, 100_000, id=id, model=Model.STREAMING)
        if pulled:
            await made.stored()

    # Playwright keeps an event loop in the thread of the tests.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(open_it())).result()


def be_refused(relay: RelayProcess) -> None:
    """A packet that pays too little."""
    author = Author()
    payment = payment_for(relay, author, author.event("too cheap"))
    cheap = replace(payment, prepare=replace(payment.prepare, amount=1))
    assert isinstance(pay(relay, cheap), Reject)


def broadcast(relay: RelayProcess, event_id: str) -> None:
    """One event for three relays: stored at one, refused by one, due at one."""
    now = int(time.time())
    engine = SqliteEngine(relay.data)
    try:
        outbox = Outbox(engine)
        places = [
            Delivery(event_id, f"wss://{name}.example", "follows", now + 3600)
            for name in ("one", "two", "three")
        ]
        outbox.add(event_id, places, now)
        outbox.finish(places[0], DeliveryState.STORED, "")
        outbox.finish(places[1], DeliveryState.FAILED, "blocked: not on the list of this relay")
    finally:
        engine.close()


def furnish(relay: RelayProcess, visitor: bytes) -> None:
    events = [publish(relay, note, named(relay, name)) for note, name in NOTES]
    draw_routes(relay)
    key = public_key_of(visitor)
    run(relay, "purse", "fill", key, "5000000")
    run(relay, "purse", "grant", public_key_of(bytes([31] * 32)), "2000000")
    subscribe(relay, visitor, "morning-news", pulled=1)
    subscribe(relay, visitor, "everything-about-farthings-and-other-coins")
    be_refused(relay)
    broadcast(relay, events[0]["id"])
    report = [["e", events[1]["id"], "spam"], ["p", events[1]["pubkey"]]]
    publish_as(relay, bytes([41] * 32), 1984, report)
    run(relay, "ban", public_key_of(bytes([51] * 32)), "--reason", "sells followers")
