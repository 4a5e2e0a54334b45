"""The other two protocols on the deployed endpoints: Aether events by HTTP, ILP and SSE, and a paid
subscription whose credit runs out and is resumed."""

import asyncio

from farthing.aether import toon
from farthing.agent.subscription_client import Relay, SubscriptionClient
from farthing.aws.outbound import HttpOutbound
from farthing.btp_nips.messages import Model
from farthing.connector.client import PreparedPayment, send_payment
from farthing.ilp.packet import Fulfill, Prepare
from farthing.nostr.filters import parse_filter
from farthing.ports.hosts import ANYWHERE
from infra.local.commands.subscribe import HttpCarrier
from tests.e2e.aether_client import AetherAuthor
from tests.e2e.authors import Author
from tests.e2e.paying import in_ten_minutes
from tests.rehearsal.deployed import Deployed, until
from tests.rehearsal.transcript import Transcript

_SUBSCRIBER = bytes([8] * 32)
_SET_UP, _EVENT_FEE = 1000, 10


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


def sells_subscriptions(relay: Deployed, transcript: Transcript) -> None:
    """Streaming, by pull: credit for two of three events. Resumed, nothing is missing."""
    asyncio.run(_subscribe(relay, transcript))


async def _subscribe(relay: Deployed, transcript: Transcript) -> None:
    author = Author()
    events = [author.event(f"sold {number}") for number in range(3)]
    await asyncio.to_thread(relay.publish, author, *events)
    terms = await asyncio.to_thread(relay.terms)
    carrier = HttpCarrier(terms.endpoint, relay.token)
    client = SubscriptionClient(Relay(terms.destination, terms.pubkey), _SUBSCRIBER, carrier)
    filters = [parse_filter({"authors": [author.pubkey]})]
    credit = _SET_UP + 2 * _EVENT_FEE
    first = await client.subscribe(filters, credit, model=Model.STREAMING)
    got = [event.id async for event in first.events()]
    assert len(got) == 2
    rest = await client.subscribe(
        filters, credit, model=Model.STREAMING, resume=first.resumption_token
    )
    got += [event.id for event in await rest.stored()]
    assert sorted(got) == sorted(str(event["id"]) for event in events)
    await rest.close()
    transcript.say(f"credit for two of three events, then resumed: {len(got)} in all")
