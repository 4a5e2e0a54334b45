"""Paying for Aether events at every door: the owner, capabilities, packets; and nothing else."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from farthing.aether import toon
from farthing.aether.capabilities import issue, parse_token
from farthing.aether.events import Event, parse_event
from farthing.ilp.condition import condition_of, interop_fulfillments
from farthing.ilp.packet import Fulfill, Prepare, Reject
from farthing.store.capabilities import Capabilities
from farthing.store.sqlite import SqliteEngine
from tests.aether.known import BY_ID, KEYS, VECTORS, pubkey, seed
from tests.e2e.aether_client import AetherAuthor, AetherClient
from tests.e2e.client import Background, RawClient
from tests.e2e.paying import (
    command,
    free_port,
    http,
    in_ten_minutes,
    information,
    post_packet,
    quote_for,
    reply_of,
)
from tests.e2e.relay_process import RelayProcess

OWNER = AetherAuthor(bytes.fromhex(KEYS["owner_aether_seed"]))
TOKENS = VECTORS["tokens"]


@pytest.fixture
def relay(start_relay: Callable[..., RelayProcess]) -> RelayProcess:
    return start_relay(
        secret_key=KEYS["owner_nostr_secret"], port=free_port(), price_per_byte=10,
        requests_per_second=0,
    )  # fmt: skip


@pytest.fixture
def client(background: Background, relay: RelayProcess) -> Iterator[AetherClient]:
    client = AetherClient(background, relay.url)
    yield client
    client.close()


def post(relay: RelayProcess, event: Event, capability: Any = None) -> tuple[int, Any]:
    body: dict[str, Any] = {"event": event.as_dict()}
    if capability is not None:
        body["capability"] = capability
    answer = http("POST", f"{relay.http}/v1/events", json.dumps(body).encode())
    return answer.status, answer.json()


def packet(relay: RelayProcess, event: Event, condition: bytes, amount: int) -> Prepare:
    address = information(relay)["ilp"]["address"]
    return Prepare(amount, in_ten_minutes(), condition, address, toon.dumps(event))


def test_only_the_owner_writes_for_nothing(
    relay: RelayProcess, client: AetherClient, connect: Callable[..., RawClient]
) -> None:
    assert client.publish(OWNER.event())["message"] == "accepted"
    assert post(relay, OWNER.event())[0] == 200
    event = AetherAuthor().event()
    price = str(10 * len(toon.dumps(event)))
    refused = client.publish(event)
    assert (refused["error"], refused["event_id"]) == ("payment_required", event.id)
    status, body = post(relay, event)
    assert (status, body["accepted"], body["error"]) == (402, False, "payment_required")
    quoted = quote_for(relay, event.as_dict())
    for quote in (refused["quote"], body["quote"], quoted):
        assert (quote["price"], quote["event_id"]) == (price, event.id)
        assert quote["condition"] == quoted["condition"]
    nostr = connect(relay)
    nostr.send("EVENT", event.as_dict())
    told = nostr.wait_for("OK", event.id)[3]
    assert told.startswith("restricted: ")
    assert price in told
    assert told.endswith(f"pay at {refused['quote']['endpoint']}")
    assert client.subscribe("s", {"ids": [event.id]}) == []


def test_the_quote_of_the_vectors(relay: RelayProcess) -> None:
    vector = VECTORS["quote"]
    quote = quote_for(relay, BY_ID[vector["event_id"]])
    assert quote["condition"] == vector["condition"]
    assert quote["size"] == VECTORS["toon"]["size"]
    bare = json.dumps(BY_ID[vector["event_id"]]).encode()
    assert http("POST", f"{relay.http}/v1/quotes", bare).json()["condition"] == vector["condition"]


def test_packets_pay_for_events(relay: RelayProcess, client: AetherClient) -> None:
    for number, kind in enumerate((1, 10001, 20001)):
        author = AetherAuthor()
        if kind == 20001:
            client.subscribe("live", {"authors": [author.pubkey]})
        event = author.event(str(number), kind=kind)
        quote = quote_for(relay, event.as_dict())
        condition, price = bytes.fromhex(quote["condition"]), int(quote["price"])
        cheap = reply_of(post_packet(relay, packet(relay, event, condition, price - 1)))
        assert isinstance(cheap, Reject)
        assert client.subscribe("none", {"ids": [event.id]}) == []
        prepare = packet(relay, event, condition, price)
        paid = reply_of(post_packet(relay, prepare))
        assert isinstance(paid, Fulfill)
        assert condition_of(paid.fulfillment) == condition
        assert reply_of(post_packet(relay, prepare)) == paid  # a repeat costs nothing
        if kind == 20001:
            assert client.wait_for(type="event", sub_id="live")["event"]["event_id"] == event.id
        else:
            (stored,) = client.subscribe("s", {"ids": [event.id]})
            assert stored == json.loads(event.to_json())
            assert client.publish(event)["message"] == "duplicate"
    done = command(relay, "audit")
    assert done.returncode == 0, done.stdout + done.stderr


def test_conditions_of_deployed_payers_are_taken_and_no_others(relay: RelayProcess) -> None:
    event = AetherAuthor().event()
    for preimage in interop_fulfillments(event.id, toon.dumps(event)):
        event_paid = packet(relay, event, condition_of(preimage), 10_000)
        assert isinstance(reply_of(post_packet(relay, event_paid)), Fulfill | Reject)
    other = AetherAuthor().event()
    wrong = reply_of(post_packet(relay, packet(relay, other, bytes(32), 10_000)))
    assert isinstance(wrong, Reject)
    assert wrong.code == "F05"


@pytest.mark.parametrize("name", [each["name"] for each in VECTORS["forged"]])
def test_forgeries_are_not_paid_for(relay: RelayProcess, name: str) -> None:
    (forged,) = [each["event"] for each in VECTORS["forged"] if each["name"] == name]
    try:
        event = parse_event(forged)
    except Exception:
        return  # has no form in which it could be sent
    data = toon.dumps(event)
    condition = condition_of(interop_fulfillments(event.id, data)[0])
    reply = reply_of(post_packet(relay, packet(relay, event, condition, 100_000)))
    assert isinstance(reply, Reject)
    assert reply.code == "F00"


def test_the_chains_of_the_vectors(relay: RelayProcess, client: AetherClient) -> None:
    writes = VECTORS["capability_writes"]
    by_delegate, by_sub = writes["by_delegate"], writes["by_sub"]
    for name, chain in TOKENS["refused"].items():
        answer = client.publish(by_delegate[0], chain)
        assert answer["error"] == "capability_refused", name
        assert post(relay, parse_event(by_delegate[0]), chain)[0] == 403, name
    chain = [each["token"] for each in TOKENS["chain"]]
    assert client.publish(by_sub[0], chain)["message"] == "accepted"
    assert client.publish(by_sub[0], chain)["message"] == "duplicate"
    assert client.publish(by_sub[1], chain)["error"] == "capability_refused"  # used once
    assert client.publish(writes["by_sub_other_kind"], chain)["error"] == "capability_refused"
    single = [TOKENS["single"]["token"]]  # twice, of which the chain has used one
    assert client.publish(by_delegate[0], single)["message"] == "accepted"
    assert client.publish(by_delegate[0], single)["message"] == "duplicate"
    assert client.publish(by_delegate[1], single)["error"] == "capability_refused"
    assert client.publish(by_delegate[1])["error"] == "payment_required"
    free = [TOKENS["without caveats"]["token"]]
    assert client.publish(by_delegate[1], free)["message"] == "accepted"
    done = command(relay, "audit")
    assert done.returncode == 0, done.stdout + done.stderr


def test_five_uses_are_five_whoever_hurries(relay: RelayProcess) -> None:
    token = issue(
        OWNER.seed, subject=pubkey("agent"), capability="relay:events:write",
        caveats={"max_uses": 5},
    )  # fmt: skip
    author = AetherAuthor(seed("agent"))
    events = [author.event(str(n), kind=(1, 20001, 11_000 + n)[n % 3]) for n in range(64)]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda event: post(relay, event, [token]), events))
    assert sorted(status for status, _ in answers) == [200] * 5 + [403] * 59
    engine = SqliteEngine(relay.data)
    try:
        assert Capabilities(engine).uses(parse_token(token).id) == 5
    finally:
        engine.close()


def test_the_owner_issues_lists_and_revokes(relay: RelayProcess, client: AetherClient) -> None:
    author = AetherAuthor()
    done = command(
        relay, "capability", "issue", author.pubkey, "--kind", "1", "--max-uses", "9",
        "--days", "1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    token = json.loads(done.stdout)
    assert token["issuer"] == OWNER.pubkey
    assert token["capability"] == "relay:events:write:1"
    assert client.publish(author.event(), [token])["message"] == "accepted"
    assert client.publish(author.event(kind=2), [token])["error"] == "capability_refused"
    listed = command(relay, "capability", "list").stdout
    assert author.pubkey in listed
    assert "1 of 9" in listed
    (token_id,) = [line.split()[0] for line in listed.splitlines() if author.pubkey in line]
    assert command(relay, "capability", "revoke", token_id).returncode == 0
    assert client.publish(author.event(), [token])["error"] == "capability_refused"
    assert "revoked" in command(relay, "capability", "list").stdout
