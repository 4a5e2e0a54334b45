"""The other two protocols on the deployed endpoints: Aether events by HTTP, ILP and SSE, and paid
subscriptions whose credit runs out and which are resumed."""

import asyncio

from farthing.aether import toon
from farthing.agent.subscription_client import (
    Relay,
    RelayRejected,
    Subscription,
    SubscriptionClient,
)
from farthing.aws.outbound import HttpOutbound
from farthing.btp_nips.messages import Model
from farthing.connector.client import PreparedPayment, send_payment
from farthing.ilp.packet import Fulfill, Prepare
from farthing.nostr.filters import Filter, parse_filter
from farthing.ports.hosts import ANYWHERE
from farthing.settings import Settings
from infra.local.commands.bookkeeping import offline_agent
from infra.local.commands.subscribe import HttpCarrier, LocalInbox
from infra.local.server.identity import with_identity
from tests.e2e.aether_client import AetherAuthor
from tests.e2e.authors import Author
from tests.e2e.paying import in_ten_minutes
from tests.e2e.relay_process import RelayProcess, environment
from tests.rehearsal.deployed import Deployed, until
from tests.rehearsal.suite import books_balance
from tests.rehearsal.transcript import Transcript

_SUBSCRIBER = bytes([8] * 32)
_SET_UP, _EVENT_FEE = 1000, 10
_PATIENCE = 120


def speaks_aether(relay: Deployed, transcript: Transcript) -> None:
    """An event is refused, paid by ILP, and read by SSE from the log of its own space."""
    author = AetherAuthor()
    event = author.event("by Aether")
    refused = relay.http("POST", "/v1/events", event.as_dict())
    assert (refused.status, refused.json()["error"]) == (402, "payment_required")
    quote = refused.json()["quote"]
    prepare = Prepare(
        int(quote["price"]), in_ten_minutes(), bytes.fromhex(quote["condition"]),
        quote["destination"], toon.dumps(event),
    )  # fmt: skip
    paid = send_payment(
        HttpOutbound(ANYWHERE), relay.terms().endpoint, relay.token, PreparedPayment(prepare, None)
    )
    assert isinstance(paid, Fulfill), paid
    again = relay.http("POST", "/v1/events", event.as_dict())
    assert again.json()["message"] == "duplicate"
    opened = relay.http("POST", "/v1/subscriptions", {"filters": [{"authors": [author.pubkey]}]})
    name = opened.json()["subscription_id"]

    def streamed() -> bool:
        path = f"/v1/stream?subscription_id={name}&last_event_id=0"
        return event.id in relay.http("GET", path, Accept="text/event-stream").data.decode()

    until("the event comes by SSE", streamed)
    assert relay.http("DELETE", f"/v1/subscriptions/{name}").json()["deleted"] is True
    with relay.connected() as nostr:
        assert nostr.ask({"authors": [author.pubkey]}) == []
    transcript.say(f"refused with a quote, paid {quote['price']}, read by SSE, unseen by Nostr")


def sells_subscriptions(relay: Deployed, bob: RelayProcess, transcript: Transcript) -> None:
    """Streaming, with credit for two of three events: by pull to a client of our own, and by push
    to Bob's agent. Resumed, nothing is missing and nothing comes twice."""
    terms = relay.terms()
    to, carrier = Relay(terms.destination, terms.pubkey), HttpCarrier(terms.endpoint, relay.token)
    own = SubscriptionClient(to, _SUBSCRIBER, carrier)
    transcript.say(f"by pull: {asyncio.run(_run_out_and_resume(relay, own))}")
    settings = with_identity(Settings.from_env(environment(bob.data, bob.settings)))
    with offline_agent(settings) as agent:
        inbox, address = LocalInbox(agent), settings.own_ilp_address
        his = SubscriptionClient(to, settings.secret, carrier, inbox, address)
        transcript.say(f"by push to {address}: {asyncio.run(_run_out_and_resume(relay, his))}")
    books_balance(relay, transcript)


async def _run_out_and_resume(relay: Deployed, client: SubscriptionClient) -> str:
    author = Author()
    events = [author.event(f"sold {number}") for number in range(3)]
    await asyncio.to_thread(relay.publish, author, *events)
    filters = [parse_filter({"authors": [author.pubkey]})]
    async with asyncio.timeout(_PATIENCE):
        first = await _subscribe(client, filters)
        got = [event.id async for event in first]
        assert len(got) == 2, got
        rest = await _subscribe(client, filters, first.resumption_token)
        got += [event.id for event in await rest.stored()]
        left = await rest.close()
    assert sorted(got) == sorted(str(event["id"]) for event in events)
    assert left == _EVENT_FEE, left
    return f"credit for two of three events, closed, resumed: {len(got)} in all, {left} returned"


async def _subscribe(
    client: SubscriptionClient, filters: list[Filter], resume: str | None = None
) -> Subscription:
    """Functions know a new peer's address a little later."""
    amount, push = _SET_UP + 2 * _EVENT_FEE, client.inbox is not None
    while True:
        try:
            return await client.subscribe(
                filters, amount, model=Model.STREAMING, push=push, resume=resume
            )
        except RelayRejected as refused:
            if "no route" not in refused.message:
                raise
            await asyncio.sleep(1)
