"""What clients and peers do with the relay, on the deployed endpoints: with rust-nostr's client,
with frames of our own, and with the `farthing` command."""

import asyncio
import json
import shutil
import sys
import time
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError
from nostr_sdk import (
    ClientBuilder,
    Event,
    Filter,
    PublicKey,
    RelayUrl,
    ReqTarget,
    SyncDirection,
    SyncOptions,
    uniffi_set_event_loop,
)

from farthing.connector.client import PaymentFailed
from farthing.ilp.packet import Fulfill, Reject
from tests.e2e.authors import Author
from tests.e2e.client import RawClient
from tests.e2e.purses import nostr_authorization, pay_by_stream
from tests.e2e.sdk_database import DictDatabase
from tests.e2e.test_nostr_sdk import next_event, person
from tests.rehearsal.deployed import PREFIX, Deployed, EventDict, until
from tests.rehearsal.places import CACHE, PYTHONPATH, ROOT, environment, run
from tests.rehearsal.transcript import Transcript

PER_BYTE = 10
PATIENCE = timedelta(seconds=60)


def says_who_it_is(relay: Deployed, transcript: Transcript, per_byte: int = PER_BYTE) -> None:
    """NIP-11 and kind 10032 agree, and tell of the deployment as it is."""
    document = relay.information()
    assert document["self"] == relay.pubkey
    assert document["fees"]["publication_per_byte"]["amount"] == per_byte
    assert document["ilp"]["endpoint"] == f"{relay.web_url}/ilp"
    assert document["ilp"]["address"] == relay.ilp_address
    assert relay.http("GET", "/healthz").json() == {"status": "ok"}
    with relay.connected() as client:
        # Announced right after a deployment, by a call for which nobody waits.
        wanted = {"kinds": [10032], "authors": [relay.pubkey]}
        (own,) = until("the relay has announced itself", lambda: client.ask(wanted))
    tags = {tag[0]: tag[1] for tag in own["tags"]}
    assert tags["price_per_byte"] == str(per_byte)
    assert tags["ilp_address"] == relay.ilp_address
    transcript.say(f"{relay.relay_url}\n{relay.web_url}/ilp\n{relay.ilp_address[:40]}...")
    transcript.say(f"a byte costs {per_byte}, by NIP-11 and by kind 10032")


def refuses_what_is_not_paid(relay: Deployed, transcript: Transcript) -> None:
    author = Author()
    event = author.event("for nothing")
    with relay.connected() as client:
        accepted, message = client.publish(event)
        assert not accepted
        assert message.startswith("restricted: ")
        transcript.say(f"EVENT         {message}")
    answer = relay.http("POST", "/v1/events", event)
    assert answer.status == 402
    transcript.say(f"POST /v1/events  {answer.status} {answer.json()['detail']}")
    with pytest.raises(PaymentFailed, match="401") as refused:
        relay.pay(author, event, token="no peer's token at all, though it is long")
    transcript.say(f"POST /ilp     {refused.value}")


def a_peer_is_added(relay: Deployed, transcript: Transcript) -> None:
    said = relay.farthing("peers", "add", "alice", "--max-balance", str(10**12))
    relay.token = said.split("token", 1)[1].split()[0]
    transcript.say("farthing --cloud peers add alice")
    author = Author()
    reply = relay.pay(author, author.event("cheap"), amount=5)
    assert isinstance(reply, Reject)
    assert reply.code == "F04"
    transcript.say(f"5 are too little: {reply.code} {reply.message}")


def stores_what_is_paid(relay: Deployed, transcript: Transcript) -> None:
    author = Author()
    event = author.event("a farthing for your thoughts")
    started = time.perf_counter()
    reply = relay.pay(author, event)
    took = (time.perf_counter() - started) * 1000
    assert isinstance(reply, Fulfill), reply
    transcript.say(f"fulfilled after {took:.0f} ms: {reply.fulfillment.hex()[:32]}...")
    with relay.connected() as client:
        assert client.ids({"ids": [event["id"]]}) == [event["id"]]
        assert client.count({"authors": [author.pubkey]})["count"] == 1
    relay.background.run(_read_by_rust(relay.relay_url, event))
    transcript.say("read back by frames of our own and by nostr-sdk")
    (row,) = [line for line in relay.farthing("peers", "list").splitlines() if "alice" in line]
    transcript.say(f"farthing --cloud peers list: {' '.join(row.split())}")
    books_balance(relay, transcript)


def pays_from_a_purse(relay: Deployed, transcript: Transcript) -> None:
    """Filled by its payment pointer in three packets, and drawn by a client that is as it comes."""
    relay.background.run(_write_from_a_purse(relay, transcript), seconds=300)
    books_balance(relay, transcript)


async def _write_from_a_purse(relay: Deployed, transcript: Transcript) -> None:
    async with person(relay.relay_url) as writer:
        secret = writer.keys.secret_key().to_hex()
        pubkey = writer.keys.public_key().to_hex()
        first = writer.event("before the purse is filled")
        transcript.say(f"EVENT         {await writer.refused(first)}")
        amounts = [2000, 2000, 3001]
        paid = await asyncio.to_thread(pay_by_stream, relay.web_url, relay.token, pubkey, amounts)
        transcript.say(f"GET /purse/..., and {paid} in three STREAM packets")
        await writer.publish(writer.event("from a purse"))
        path = f"/v1/purses/{pubkey}"
        sign = nostr_authorization(secret, "GET", relay.web_url + path)
        purse = (await asyncio.to_thread(relay.http, "GET", path, Authorization=sign)).json()
        assert int(purse["filled"]) == paid == int(purse["drawn"]) + int(purse["left"])
        transcript.say(f"nostr-sdk wrote: drawn {purse['drawn']}, left {purse['left']}")


async def _read_by_rust(url: str, event: EventDict) -> None:
    async with person(url) as reader:
        wanted = ReqTarget.auto([Filter().author(PublicKey.parse(event["pubkey"]))])
        found = await reader.client.fetch_events(wanted, PATIENCE)
        assert [each.id().to_hex() for each in found] == [event["id"]]
        assert all(each.verify() for each in found)


def books_balance(relay: Deployed, transcript: Transcript) -> None:
    audit = relay.farthing("audit").splitlines()
    assert audit[-1] == "0 differences", audit
    transcript.say(f"farthing --cloud audit: {audit[0]}; {audit[-1]}")


def tells_subscribers(relay: Deployed, transcript: Transcript) -> None:
    """Live, to a client of our own and to nostr-sdk's at once."""
    author = Author()
    with relay.connected() as client:
        assert client.request("live", {"authors": [author.pubkey]}) == []
        relay.background.run(_told_rust(relay, author), seconds=120)
        for _ in range(3):
            assert client.wait_for("EVENT", "live")[2]["pubkey"] == author.pubkey
        started = time.perf_counter()
        event = author.event("how long does it take")
        relay.publish(author, event)
        assert client.wait_for("EVENT", "live")[2]["id"] == event["id"]
        took = (time.perf_counter() - started) * 1000
    transcript.say(f"three events to both; {took:.0f} ms from paying to the subscriber's screen")


async def _told_rust(relay: Deployed, author: Author) -> None:
    async with person(relay.relay_url) as reader:
        stream = reader.client.notifications()
        wanted = Filter().author(PublicKey.parse(author.pubkey)).limit(0)
        output = await reader.client.subscribe(ReqTarget.auto([wanted]))
        while not (
            (got := await stream.next()).is_message()
            and got.message.as_enum().is_end_of_stored_events()
        ):
            pass
        for number in range(3):
            event = author.event(f"live {number}")
            await asyncio.to_thread(relay.publish, author, event)
            assert (await next_event(stream, output.id)).id().to_hex() == event["id"]


def numbers_changes(relay: Deployed, transcript: Transcript) -> None:
    """Everything from the beginning, without a gap; then live, from where the answer ended."""
    author = Author()
    with relay.connected() as client:
        client.send("CHANGES", "all", {"since": 0, "live": True})
        numbers, last = _replayed(client, "all")
        assert numbers == list(range(1, last + 1))
        events = [author.event() for _ in range(3)]
        relay.publish(author, *events)
        live = [client.wait_for("CHANGES", "all", "EVENT") for _ in events]
    assert [frame[3] for frame in live] == [last + 1, last + 2, last + 3]
    assert [frame[4]["id"] for frame in live] == [event["id"] for event in events]
    transcript.say(f"1 to {last} without a gap, then {last + 1} to {last + 3} live")


def _replayed(client: RawClient, subscription: str) -> tuple[list[int], int]:
    numbers: list[int] = []
    while True:
        frame = client.wait_for("CHANGES", subscription)
        if frame[2] == "EOSE":
            return sorted(numbers), frame[3]
        numbers.append(frame[3])


def is_synced_with(relay: Deployed, transcript: Transcript) -> None:
    """NIP-77 by nostr-sdk and by `farthing sync`."""
    author = Author()
    events = [author.event() for _ in range(5)]
    relay.publish(author, *events)
    wanted = {event["id"] for event in events}
    received = relay.background.run(_synced_by_rust(relay.relay_url, author, events[:2]))
    assert received == wanted - {event["id"] for event in events[:2]}
    transcript.say(f"nostr-sdk had 2 of 5 and fetched {len(received)}")

    data = CACHE / "synced"
    shutil.rmtree(data, ignore_errors=True)
    filter = json.dumps({"authors": [author.pubkey]})
    here = environment(PYTHONPATH=PYTHONPATH, FARTHING_DATA=str(data))
    farthing = [sys.executable, "-m", "infra.local"]
    sync = ["sync", relay.relay_url, "--dir", "down", "--quiet", "--filter", filter]
    run([*farthing, *sync], cwd=ROOT, env=here)
    exported = run([*farthing, "export", "--quiet", "--filter", filter], cwd=ROOT, env=here)
    found = {json.loads(line)["id"] for line in exported.splitlines() if line.startswith("{")}
    assert found == wanted
    transcript.say(f"farthing sync --dir down fetched {len(found)}")


async def _synced_by_rust(url: str, author: Author, known: list[EventDict]) -> set[str]:
    uniffi_set_event_loop(asyncio.get_running_loop())
    database = DictDatabase(Event.from_json(json.dumps(event)) for event in known)
    client = ClientBuilder().database(database).build()
    await client.add_relay(RelayUrl.parse(url))
    await client.connect(PATIENCE)
    try:
        filter = Filter().author(PublicKey.parse(author.pubkey))
        options = SyncOptions().direction(SyncDirection.DOWN)
        output = await client.sync(filter, None, options)
    finally:
        await client.shutdown()
    assert not output.failed, output.failed
    return set(database.events) - {event["id"] for event in known}


def serves_each_verb_by_its_own_function(relay: Deployed, transcript: Transcript) -> None:
    """Called as the route of each would call it, under its own role."""
    author = Author()
    event = author.event("each verb")
    relay.publish(author, event)
    mine = {"authors": [author.pubkey]}
    before = connections(relay)
    with relay.connected() as client:
        client.challenge()  # a connection's first message is answered with it
        (connection,) = connections(relay) - before
        ask = _Caller(relay, connection).ask
        # What may have no answer has no route response: its frames are posted.
        assert ask("req", "REQ", "own", mine) is None
        assert client.wait_for("EVENT", "own")[2] == event
        client.wait_for("EOSE", "own")
        assert ask("count", "COUNT", "n", mine)[2]["count"] == 1
        assert ask("close", "CLOSE", "own") is None
        assert ask("event", "EVENT", author.event("unpaid"))[2] is False
        assert ask("changes", "CHANGES", "c", {"since": 0, **mine}) is None
        assert client.wait_for("CHANGES", "c", "EVENT")[4] == event
        client.wait_for("CHANGES", "c", "EOSE")
        assert ask("negentropy", "NEG-OPEN", "s", mine, "6100000200") is None
        client.wait_for("NEG-MSG", "s")
        assert ask("negentropy", "NEG-CLOSE", "s") is None
        signed = author.auth_event(challenge="another's", relay=relay.relay_url)
        assert ask("auth", "AUTH", signed)[2] is False
    transcript.say("req, count, close, event, changes, negentropy, auth")


def keeps_functions_in_bounds(relay: Deployed, transcript: Transcript) -> None:
    """That the steps before went well says something only if policies are enforced."""
    key = {"pk": {"S": "peers"}, "sk": {"S": "alice"}}
    ledger = {"TableName": f"{PREFIX}ledger", "Key": key}
    assert "Item" in relay.client("dynamodb", role=relay.role_of("ilp")).get_item(**ledger)
    for function in ("connect", "fanout"):
        with pytest.raises(ClientError, match="AccessDenied"):
            relay.client("dynamodb", role=relay.role_of(function)).get_item(**ledger)
    transcript.say("ilp can read the ledger; connect and fanout are denied it")


def connections(relay: Deployed) -> set[str]:
    """Those that the relay knows of."""
    keys = (item["pk"]["S"] for item in relay.items("sessions"))
    return {key.removeprefix("c#") for key in keys if key.startswith("c#")}


class _Caller:
    """API Gateway, for messages of one connection."""

    def __init__(self, relay: Deployed, connection: str) -> None:
        self._relay = relay
        self._sample = json.loads((ROOT / "events/req.json").read_text())
        self._connection = connection

    def ask(self, function: str, *message: object) -> Any:
        """Send a message by its own route; what the response carries back to the client."""
        context = {
            **self._sample["requestContext"],
            "routeKey": message[0],
            "connectionId": self._connection,
            "requestTimeEpoch": int(time.time() * 1000),
        }
        event = {**self._sample, "requestContext": context, "body": json.dumps(message)}
        answer = self._relay.invoke(function, event)
        assert answer["statusCode"] == 200
        return json.loads(answer["body"]) if "body" in answer else None
