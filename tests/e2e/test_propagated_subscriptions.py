"""Subscriptions that are passed on among running relays which all know each other, and an address
that is not the subscriber's own: by packets of a client of its own code."""

import re
import time
from collections.abc import Iterator
from itertools import permutations
from secrets import token_urlsafe

import orjson
import pytest

from farthing.agent.audit import audit
from farthing.ilp.tokens import seal
from farthing.nostr.events import sign_event
from farthing.nostr.filters import parse_filter
from farthing.settings import Settings
from farthing.store.ledger import Ledger, Peer, hash_token
from farthing.store.sqlite import SqliteEngine
from infra.local.commands.bookkeeping import offline_agent
from tests.e2e.paying import command_environment, free_port, http, token_of
from tests.e2e.raw_subscriber import RawSubscriber, Reply, key_of
from tests.e2e.relay_process import RelayProcess

SECRETS = {name: bytes([60 + number] * 32) for number, name in enumerate("abc")}
AUTHOR, CLIENT, THIEF = bytes([7] * 32), bytes([8] * 32), bytes([9] * 32)
BUDGET = 6000
PRICE = 1160


class Circle:
    """Three relays, each a peer of the two others."""

    def __init__(self, relays: dict[str, RelayProcess]) -> None:
        self.relays = relays

    def __getitem__(self, name: str) -> RelayProcess:
        return self.relays[name]

    def subscriber(self, name: str, secret: bytes) -> RawSubscriber:
        relay = self[name]
        return RawSubscriber(relay.port, token_of(relay), relay.pubkey, f"g.{name}", secret)

    def publish(self, name: str, kind: int) -> str:
        event = sign_event(AUTHOR, kind=kind, content=name, created_at=int(time.time()), tags=[])
        body = orjson.dumps(event.as_dict())
        url = f"{self[name].http}/v1/events"
        assert http("POST", url, body, Content_Type="application/json").status == 200
        return event.id

    def paid(self, name: str) -> int:
        """What a relay owes the others for packets of its own and of others."""
        engine = SqliteEngine(self[name].data)
        ledger = Ledger(engine)
        found = sum(ledger.balance(peer.id).payable for peer in ledger.peers())
        engine.close()
        return found

    def packets(self, name: str) -> int:
        """That the relay has answered, as its own figures say."""
        text = http("GET", f"{self[name].http}/metrics").data.decode()
        return sum(
            int(float(line.rsplit(" ", 1)[1]))
            for line in text.splitlines()
            if re.match(r"farthing_packets_(fulfilled|rejected)(_total)?[ {]", line)
        )

    def audit(self) -> None:
        for relay in self.relays.values():
            environment = command_environment(relay)
            with offline_agent(Settings.from_env(environment)) as agent:
                assert audit(agent).differences == []


@pytest.fixture(scope="module")
def circle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Circle]:
    folder, ports = tmp_path_factory.mktemp("circle"), {name: free_port() for name in "abc"}
    tokens = {pair: token_urlsafe(32) for pair in permutations("abc", 2)}
    for name, secret in SECRETS.items():
        engine = SqliteEngine(folder / name)
        for other in set("abc") - {name}:
            Ledger(engine).add_peer(Peer(
                other, hash_token(tokens[other, name]), ilp_address=f"g.{other}",
                endpoint=f"http://127.0.0.1:{ports[other]}/ilp", pubkey=key_of(SECRETS[other]),
                outgoing_token=seal(secret, other, tokens[name, other].encode()),
                max_balance=10**9,
            ))  # fmt: skip
        engine.close()
    relays = {
        name: RelayProcess(
            folder / name, port=ports[name], ilp_address=f"g.{name}", price_per_byte=0,
            secret_key=secret.hex(), upkeep_seconds=0, sweep_seconds=1, requests_per_second=0,
            subscription_propagate=1,
        ).start()
        for name, secret in SECRETS.items()
    }  # fmt: skip
    circle = Circle(relays)
    for one, other in permutations("abc", 2):
        body = orjson.dumps(_identity(circle[one]))
        url = f"{circle[other].http}/v1/events"
        reply = http("POST", url, body, Content_Type="application/json")
        assert reply.status == 200, reply.data
    yield circle
    circle.audit()
    for relay in relays.values():
        relay.stop()
        relay.check_log()


def _identity(relay: RelayProcess) -> object:
    """The relay's own kind 10032."""
    environment = command_environment(relay)
    with offline_agent(Settings.from_env(environment)) as agent:
        wanted = parse_filter({"kinds": [10032], "authors": [relay.pubkey]})
        return next(iter(agent.reader.find(wanted))).event.as_dict()


def pulled(subscriber: RawSubscriber, id: str, number: int) -> list[str]:
    """So many events, and whatever comes with the last of them."""
    found: list[str] = []
    ends = time.monotonic() + 60
    while len(found) < number:
        assert time.monotonic() < ends, found
        found += subscriber.req(id, pull=50).ids()
    return found


def status(subscriber: RawSubscriber, id: str) -> Reply:
    return subscriber.req(id)


def test_among_three_relays_in_a_circle(circle: Circle) -> None:
    one = circle.subscriber("a", CLIENT)
    propagate = {"hops": 3, "budget": str(BUDGET)}

    opened = one.req("far", [{"kinds": [1201]}], PRICE + BUDGET, propagate=propagate)

    assert (opened.code, opened.json["credit"]) == ("", "0")
    assert _settled(circle) <= BUDGET
    far = [circle.publish(name, 1201) for name in "cb"]
    near = circle.publish("a", 1201)
    assert sorted(pulled(one, "far", 3)) == sorted([*far, near])
    assert one.req("far", pull=50).ids() == []
    assert circle.paid("a") <= BUDGET
    circle.audit()


def _settled(circle: Circle) -> int:
    """What the first relay has paid, once all have passed on what they pass on."""
    ends = time.monotonic() + 60
    while not all(_has_spread(circle, name) for name in "abc"):
        assert time.monotonic() < ends
    return circle.paid("a")


def _has_spread(circle: Circle, name: str) -> bool:
    environment = command_environment(circle[name])
    with offline_agent(Settings.from_env(environment)) as agent:
        found = list(agent.paid_subscriptions.all(agent.now))
        return bool(found) and not any(each.agreed.hops and not each.is_spread for each in found)


@pytest.mark.parametrize("budget", [0, PRICE - 1, PRICE])
def test_no_more_than_the_budget_is_spent_and_the_rest_returns(circle: Circle, budget: int) -> None:
    one, before = circle.subscriber("a", CLIENT), circle.paid("a")
    filters = [{"kinds": [1202 + budget]}]
    propagate = {"hops": 1, "budget": str(budget)}
    assert one.req(f"small{budget}", filters, PRICE + budget, propagate=propagate).code == ""

    _settled(circle)

    assert circle.paid("a") - before <= budget
    returned = one.close(f"small{budget}").json["credit"]
    assert int(returned) == budget - (circle.paid("a") - before)


def test_the_address_of_a_victim(circle: Circle) -> None:
    """It gets one small packet, and no money moves."""
    thief, seen = circle.subscriber("a", THIEF), circle.packets("b")
    paid = circle.paid("a")

    for number in range(5):
        reply = thief.req(f"t{number}", [{"kinds": [1]}], PRICE, replyTo="g.b")
        assert reply.error == ("F99", "address_unproven")

    assert circle.packets("b") - seen == 1
    assert circle.paid("a") == paid
    assert thief.req("t0").error == ("F99", "subscription_not_found")
    circle.audit()
