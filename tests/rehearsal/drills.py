"""What must not hurt: a record that no handler can take, a client that vanishes, tables that turn
requests away, a deployment in the midst of traffic, and a budget that is spent."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_hex
from typing import Any

from urllib3.exceptions import HTTPError

from farthing.connector.client import PaymentFailed
from farthing.ilp.packet import Fulfill
from farthing.ports.outbound import OutboundFailed
from farthing.store.table import Table
from infra.deployment import Deployment
from tests.e2e.authors import Author
from tests.e2e.client import RawClient
from tests.rehearsal.cli import Cdk
from tests.rehearsal.deployed import PREFIX, Deployed, EventDict, until
from tests.rehearsal.gate import Gate
from tests.rehearsal.suite import connections
from tests.rehearsal.transcript import Transcript

_STREAM_READERS = ("sequencer", "fanout")  # of the events table
_PATIENCE = 60  # AWS's least, where the deployment's is five minutes and an hour
# An operation is tried seven times: so few fail all of them that none does here.
_THROTTLED_SHARE = 0.25
_PUBLISHERS = 2


class Poison:
    """A record that fails whatever is done with it: an item that claims to be an event and is none.

    The rest of the rehearsal may go on while Lambda is losing its patience with it.
    """

    def __init__(self, relay: Deployed) -> None:
        self._relay = relay
        self._kept: dict[str, int] = {}

    def put(self, transcript: Transcript) -> None:
        for name in _STREAM_READERS:
            source = self._source(name)
            self._kept[name] = source["MaximumRecordAgeInSeconds"]
            self._set_patience(source, _PATIENCE)
        self._relay.client("dynamodb").put_item(
            TableName=f"{PREFIX}events",
            Item={"pk": {"S": "f" * 64}, "sk": {"S": "e"}, "j": {"S": "not an event"}},
        )
        transcript.say(f"an item that is no event, and {_PATIENCE} s of patience with it")

    def check(self, transcript: Transcript) -> None:
        """Both readers of the stream have given up on it, said so, and gone on."""
        for name in _STREAM_READERS:
            batch = until(
                f"the record of {name} in its failure queue",
                lambda name=name: self._failure(name),  # type: ignore[misc]
                2 * _PATIENCE,
            )
            transcript.say(
                f"{name}-failures: {batch['batchSize']} record,"
                f" {batch['startSequenceNumber']} to {batch['endSequenceNumber']}"
            )
            self._set_patience(self._source(name), self._kept[name])
        author = Author()
        with self._relay.connected() as client:
            client.request("live", {"authors": [author.pubkey]})
            client.send("CHANGES", "feed", {"authors": [author.pubkey], "since": 0, "live": True})
            client.wait_for("CHANGES", "feed", "EOSE")
            event = author.event("life goes on")
            self._relay.publish(author, event)
            assert client.wait_for("EVENT", "live")[2]["id"] == event["id"]
            number = client.wait_for("CHANGES", "feed", "EVENT")[3]
        transcript.say(f"the next event is delivered, and has the number {number}")

    def _source(self, name: str) -> dict[str, Any]:
        found = self._relay.client("lambda").list_event_source_mappings(
            FunctionName=f"{PREFIX}{name}"
        )
        source: dict[str, Any] = found["EventSourceMappings"][0]
        return source

    def _set_patience(self, source: dict[str, Any], seconds: int) -> None:
        self._relay.client("lambda").update_event_source_mapping(
            UUID=source["UUID"], MaximumRecordAgeInSeconds=seconds
        )

    def _failure(self, name: str) -> dict[str, Any] | None:
        sqs = self._relay.client("sqs")
        url = sqs.get_queue_url(QueueName=f"{PREFIX}{name}-failures")["QueueUrl"]
        for message in sqs.receive_message(QueueUrl=url).get("Messages", []):
            batch: dict[str, Any] = json.loads(message["Body"])["DDBStreamBatchInfo"]
            return batch
        return None


def a_client_vanishes(relay: Deployed, transcript: Transcript) -> None:
    """First as API Gateway tells of it, then as it sometimes does not: `$disconnect` is best
    effort, and the first delivery that comes back as gone has to do."""
    _vanish(relay, Author(), told=True)
    transcript.say("with $disconnect: forgotten at once")
    with _no_disconnect(relay):
        _vanish(relay, Author(), told=False)
    transcript.say("without it: forgotten with the first event that could not be delivered")


def _vanish(relay: Deployed, author: Author, *, told: bool) -> None:
    before = connections(relay)
    client = RawClient(relay.background, relay.relay_url)
    client.request("live", {"authors": [author.pubkey]})
    (connection,) = connections(relay) - before
    assert _traces(relay, connection)
    client.abort()
    if not told:
        until("API Gateway knows that it has gone", lambda: _is_gone(relay, connection))
        relay.publish(author, author.event("is anybody there"))
    until("the connection is forgotten", lambda: not _traces(relay, connection))


def _is_gone(relay: Deployed, connection: str) -> bool:
    gateway = relay.client("apigatewaymanagementapi", relay.relay_url.replace("ws", "http", 1))
    try:
        gateway.get_connection(ConnectionId=connection)
    except gateway.exceptions.GoneException:
        return True
    return False


def _traces(relay: Deployed, connection: str) -> list[str]:
    """What is kept of a connection: itself, its subscriptions, and where these are indexed."""
    return [text for item in relay.items("sessions") if connection in (text := json.dumps(item))]


@contextmanager
def _no_disconnect(relay: Deployed) -> Iterator[None]:
    """Have API Gateway tell nobody about connections that end."""
    gateway = relay.client("apigatewayv2")
    api = relay.relay_url.split("/")[-2]
    routes = gateway.get_routes(ApiId=api)["Items"]
    (route,) = [each for each in routes if each["RouteKey"] == "$disconnect"]
    gateway.update_route(ApiId=api, RouteId=route["RouteId"], Target="integrations/nobody")
    try:
        yield
    finally:
        gateway.update_route(ApiId=api, RouteId=route["RouteId"], Target=route["Target"])


def tables_are_throttled(relay: Deployed, gate: Gate, transcript: Transcript) -> None:
    """One of four requests is turned away, and nobody outside notices."""
    author = Author()
    events = [author.event() for _ in range(5)]
    with relay.connected() as client:
        with gate.throttling(_THROTTLED_SHARE, *(f"{PREFIX}{table}" for table in Table)):
            client.request("live", {"authors": [author.pubkey]})
            relay.publish(author, *events)
            live = {client.wait_for("EVENT", "live")[2]["id"] for _ in events}
            assert live == {event["id"] for event in events}
            assert set(client.ids({"authors": [author.pubkey]})) == live
        until("all of them are numbered", lambda: len(_numbered(client, author)) == len(events))
    refused = ", ".join(f"{number} {name}" for name, number in sorted(gate.refused.items()))
    assert gate.refused
    transcript.say(f"turned away: {refused}")
    transcript.say(f"{len(events)} of {len(events)} stored, delivered and numbered")


def _numbered(client: RawClient, author: Author) -> list[str]:
    client.send("CHANGES", "numbers", {"authors": [author.pubkey], "since": 0})
    found: list[str] = []
    while (frame := client.wait_for("CHANGES", "numbers"))[2] == "EVENT":
        found.append(frame[4]["id"])
    return found


class _Publisher(threading.Thread):
    """Pays for one event after the other. `stored` has those that were fulfilled, `refused` why
    others were rejected, and `unanswered` what came where no packet did."""

    def __init__(self, relay: Deployed, author: Author, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self._relay, self._author, self._over = relay, author, over
        self.stored: list[EventDict] = []
        self.refused: list[str] = []
        self.unanswered: list[str] = []

    def run(self) -> None:
        while not self._over.is_set():
            event = self._author.event()
            try:
                reply = self._relay.pay(self._author, event)
            except (PaymentFailed, OutboundFailed, HTTPError, ValueError) as error:
                self.unanswered.append(f"{type(error).__name__}: {error}")
                continue
            if isinstance(reply, Fulfill):
                self.stored.append(event)
            else:
                self.refused.append(f"{reply.code} {reply.message}")


def deploys_during_traffic(
    relay: Deployed, cdk: Cdk, transcript: Transcript, **context: object
) -> None:
    """Every packet is answered. Every event that was acknowledged is there, is numbered once, and
    has reached whoever stayed connected all the while."""
    author, over = Author(), threading.Event()
    publishers = [_Publisher(relay, author, over) for _ in range(_PUBLISHERS)]
    with relay.connected() as client:
        client.request("live", {"authors": [author.pubkey]})
        for publisher in publishers:
            publisher.start()
        try:
            relay.outputs = cdk.deploy(**context)
            count = sum(len(each.stored) for each in publishers)
            until(
                "events are stored by what was deployed",
                lambda: sum(len(each.stored) for each in publishers) > count + 5,
            )
        finally:
            over.set()
            for publisher in publishers:
                publisher.join(120)
        stored = {event["id"] for each in publishers for event in each.stored}
        refused = [why for each in publishers for why in each.refused]
        unanswered = [why for each in publishers for why in each.unanswered]
        _all_there(client, author, stored)
    transcript.say(f"{len(stored)} events acknowledged meanwhile, {len(refused)} rejected")
    for why in sorted(set(refused)):
        transcript.say(f"rejected: {refused.count(why)} x {why[:90]}")
    for why in sorted(set(unanswered)):
        transcript.say(f"without an answer: {unanswered.count(why)} x {why[:200]}")
    transcript.say("all of them stored, numbered once, and delivered to a client that stayed")
    assert not unanswered, unanswered


def rotate_key(relay: Deployed, transcript: Transcript) -> None:
    """As the operator does; functions read the new key when `key_version` is raised."""
    arn = relay.outputs[f"{PREFIX}storage"]["KeyArn"]
    relay.client("secretsmanager").put_secret_value(SecretId=arn, SecretString=token_hex(32))
    transcript.say("aws secretsmanager put-secret-value: the owner's key is another")


def _all_there(client: RawClient, author: Author, stored: set[str]) -> None:
    missing = set(stored)
    while missing:
        missing.discard(client.wait_for("EVENT", "live")[2]["id"])
    found = client.ids({"authors": [author.pubkey], "limit": 5000})
    assert stored <= set(found)
    until("all are numbered", lambda: stored <= set(_numbered(client, author)))
    numbered = _numbered(client, author)
    assert len(numbered) == len(set(numbered)) == len(found)


def the_budget_is_spent(relay: Deployed, transcript: Transcript) -> None:
    """The budget's topic is told, as the budget would: nobody can spend until it is released."""
    topics = relay.client("sns").list_topics()["Topics"]
    (spent,) = [each["TopicArn"] for each in topics if "Spent" in each["TopicArn"]]
    functions = relay.client("lambda")

    def bound(name: str) -> int | None:
        found = functions.get_function_concurrency(FunctionName=f"{PREFIX}{name}")
        limit: int | None = found.get("ReservedConcurrentExecutions")
        return limit

    relay.client("sns").publish(TopicArn=spent, Message="The budget is spent")
    until("payments are stopped", lambda: bound("ilp") == 0)
    assert bound("event") == 0
    assert bound("sequencer") is None
    answer = relay.http("GET", "/healthz")
    assert answer.status >= 400, answer.status
    transcript.say(f"stopped: GET /healthz answers {answer.status}")
    relay.invoke("brake", {"release": True})
    assert bound("ilp") == Deployment().concurrency["ilp"]
    assert bound("event") is None
    until("it answers again", lambda: relay.http("GET", "/healthz").status == 200)
    transcript.say("released: it answers again")
