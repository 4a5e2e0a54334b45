"""Aether on the deployed endpoints: an event by HTTP, ILP and SSE."""

from farthing.aether import toon
from farthing.aws.outbound import HttpOutbound
from farthing.connector.client import PreparedPayment, send_payment
from farthing.ilp.packet import Fulfill, Prepare
from farthing.ports.hosts import ANYWHERE
from tests.e2e.aether_client import AetherAuthor
from tests.e2e.paying import in_ten_minutes
from tests.rehearsal.deployed import Deployed, until
from tests.rehearsal.transcript import Transcript


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
