"""Least privilege, held to what handlers really do: every call that they make is permitted, and
nothing is permitted that none of them makes."""

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from farthing.aether import keys
from farthing.aether.capabilities import issue
from farthing.btp_nips.conditions import delivery_fulfillment
from farthing.btp_nips.messages import Close, Count, Message, Propagation
from farthing.btp_nips.messages import Payment as BtpPayment
from farthing.btp_nips.models import Model
from farthing.connector.peering import derived_token
from farthing.ilp.condition import author_fulfillment, condition_of
from farthing.ilp.packet import Fulfill, decode_prepare, encode
from farthing.ilp.tokens import seal
from farthing.nostr.events import Event, public_key_of
from farthing.nostr.filters import parse_filter
from farthing.ports.connections import Delivery
from farthing.ports.outbound import OutboundFailed, Response
from farthing.relay.sealed_sets import SEALED
from farthing.store.cursors import Cursors, Lease
from farthing.store.ledger import Hold, Peer, hash_token
from farthing.store.routes import GENERATION_SECONDS, Route
from farthing.store.subscriptions import CHANGES, Subscription, request_order
from farthing.store.table import Table
from infra.permissions import DERIVED_KEYS, KEY, POSTING, SENDING, TABLES
from tests.ilp.paying import PAYER, packet
from tests.infra.conftest import ROOT
from tests.infra.recording import CONNECTION, HOST, Stage
from tests.purses.filling import fill_packet
from tests.purses.test_purse_http import nostr
from tests.relay import aether_world
from tests.relay.aether_world import AetherClient
from tests.relay.test_catching_up import Session as RelayElsewhere
from tests.relay.world import ALICE, BOB, OWNER, START, signed
from tests.subscriptions.world import SUBSCRIBER, Subscriber

WITHOUT_TABLES = {"brake", "origin"}  # they know Lambda, or a secret, and nothing else


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    stage = new_stage(tmp_path_factory.mktemp("stage"))
    live(stage)
    yield stage
    stage.engine.inner.close()


def new_stage(folder: Path) -> Stage:
    SEALED.clear()
    return Stage(
        folder, settlement_token="s" * 43, purse_token="p" * 43, count_exactly=2,
        max_removed_at_once=1,
    )  # fmt: skip


def live(stage: Stage) -> None:
    """Everything that a relay does in its life, once."""
    talk(stage, {})
    talk(stage, dict.fromkeys(_FUNCTIONS, "default"), who="another")
    web(stage)
    aether(stage)
    pass_on_free(stage)
    pay(stage)
    pass_on_paid(stage)
    govern(stage)
    keep_up(stage)


_FUNCTIONS = ("event", "req", "close", "count", "auth", "changes", "negentropy")


def talk(stage: Stage, served_by: dict[str, str], who: str = CONNECTION) -> None:
    """Each verb on its route, or all of them on `$default`."""

    def say(function: str, *parts: object) -> Any:
        return stage.socket(served_by.get(function, function), *parts, connection=who)

    stage.socket("connect", connection=who)
    for function in _FUNCTIONS:  # the challenge goes with a connection's first message
        first = f"first-{function}-{who}"
        stage.socket("connect", connection=first)
        stage.socket(served_by.get(function, function), "CLOSE", "x", connection=first)
        stage.socket("disconnect", connection=first)
    mine = [signed(content=f"{who} {n}", created_at=START + n, tags=[["t", who]]) for n in range(4)]
    for event in mine:
        say("event", "EVENT", event.as_dict())
    for version in range(2):  # a replaceable, and its successor
        profile = signed(kind=0, content=f"{who} {version}", created_at=START + version)
        say("event", "EVENT", profile.as_dict())
    article = signed(kind=30023, tags=[["d", who]])
    address = f"30023:{article.pubkey}:{who}"
    say("event", "EVENT", article.as_dict())
    deletion = signed(kind=5, tags=[["e", mine[3].id], ["a", address]], created_at=START + 10)
    say("event", "EVENT", deletion.as_dict())
    pass_on(stage, say, who)
    read(say, mine[0].pubkey, mine[0].id)
    authenticate(stage, say, who)
    say("changes", "CHANGES", "once", {"since": 0, "authors": [mine[0].pubkey]})
    with overtaken(stage, who, "live"):
        say("changes", "CHANGES", "live", {"since": 0, "live": True})
    deliver(stage, who)
    say("changes", "CHANGES", "live", {"since": 0, "live": True})
    say("changes", "CHANGES", "wrong", {"kinds": "no list", "live": True})
    authenticate(stage, say, who)
    reconcile(say)
    leave(stage, say, who)
    say("req", "REQ", "left open", {"kinds": [1]})
    stage.socket("disconnect", connection=who)


def read(say: Any, pubkey: str, event_id: str) -> None:
    for number, filter in enumerate(
        [{"ids": [event_id]}, {"authors": [pubkey]}, {"kinds": [1], "authors": [pubkey]},
         {"#t": [CONNECTION]}, {"kinds": [1, 4]}, {}]
    ):  # fmt: skip
        say("req", "REQ", f"r{number}", filter)
        say("count", "COUNT", f"c{number}", filter)
    say("req", "REQ", "r0", {"kinds": [7]})  # in another's place
    say("req", "REQ", "no filter")
    say("close", "CLOSE", "r0")
    say("close", "CLOSE", "never opened")


def authenticate(stage: Stage, say: Any, who: str) -> None:
    connection = stage.agent.sessions.get(who)
    assert connection is not None
    tags = [["relay", f"wss://{HOST}"], ["challenge", connection.challenge]]
    say("auth", "AUTH", signed(BOB, kind=22242, content="", tags=tags).as_dict())
    private = signed(kind=1059, tags=[["p", public_key_of(BOB)]], content=who)
    say("event", "EVENT", private.as_dict())
    say("req", "REQ", "private", {"kinds": [1059], "#p": [public_key_of(BOB)]})


def deliver(stage: Stage, who: str) -> None:
    """The streams, while someone listens, and then to someone who has gone."""
    for fate in (Delivery.DELIVERED, Delivery.GONE):
        stage.connections.fate[who] = fate
        stage.store(signed(content=f"to {who}, {fate}"))
        stage.stream("sequencer", Table.EVENTS)
        stage.stream("push", Table.CHANGES)
    for fate in (Delivery.DELIVERED, Delivery.GONE):
        stage.connections.fate.clear()
        stage.socket("connect", connection=who)
        stage.socket("req", "REQ", "listening", {"kinds": [1, 1059]}, connection=who)
        stage.connections.fate[who] = fate
        stage.stream("fanout", Table.EVENTS)
    stage.connections.fate.clear()
    stage.socket("connect", connection=who)


@contextmanager
def overtaken(stage: Stage, who: str, subscription_id: str) -> Iterator[None]:
    """While a live answer is sent, another container brings news for it."""
    cursors = Cursors(stage.engine.inner, 7500)
    order = request_order(stage.next_time_ms)
    subscription = Subscription(who, subscription_id, order, (), CHANGES)
    now_ms = int(stage.clock() * 1000)
    stage.meanwhile = lambda: cursors.take(subscription, Lease(now_ms, now_ms + 1))
    yield
    stage.meanwhile = lambda: None


def pass_on(stage: Stage, say: Any, who: str) -> None:
    """Ephemeral events go to who listens at once, there or gone, allowed to see them or not."""
    for fate in (Delivery.DELIVERED, Delivery.GONE):
        listener = f"listener of {who}"
        stage.socket("connect", connection=listener)
        stage.socket("req", "REQ", "passing", {"kinds": [20001, 24133]}, connection=listener)
        stage.connections.fate[listener] = fate
        say("event", "EVENT", signed(kind=20001, content=f"{who} {fate}").as_dict())
    stage.connections.fate.clear()


def pass_on_free(stage: Stage) -> None:
    """Ephemeral events that cost nothing, by every door; and stored ones, in parts."""
    pass_ephemeral_on(stage, lambda event: stage.web("events", event.as_dict()))
    pass_ephemeral_on(stage, lambda event: stage.socket("event", "EVENT", event.as_dict()))
    pass_ephemeral_on(stage, lambda event: stage.socket("default", "EVENT", event.as_dict()))
    with_listener(stage, Delivery.DELIVERED)
    letter = signed(kind=1059, tags=[["p", public_key_of(BOB)]], content="in parts")
    stage.store(letter, signed(content="in parts"))
    stage.most_at_once = 1
    stage.stream("fanout", Table.EVENTS)
    stage.most_at_once = 1000
    for fate in (Delivery.BUSY, Delivery.GONE):
        stage.connections.fate["listener"] = fate
        stage.deliver_parts()
    stage.connections.fate.clear()


def pass_on_paid(stage: Stage) -> None:
    pass_ephemeral_on(stage, lambda event: stage.packet(packet(stage.agent, event)))


def pass_ephemeral_on(stage: Stage, take: Callable[[Event], object]) -> None:
    """To who is there, to who has gone, and to more than one call serves."""
    for most, fate in ((1000, Delivery.DELIVERED), (1000, Delivery.GONE), (1, Delivery.DELIVERED)):
        with_listener(stage, fate)
        stage.most_at_once = most
        stage.clock.now += 1
        take(signed(kind=20001, content=f"{most} {fate}", created_at=int(stage.clock())))
    stage.most_at_once = 1000
    stage.parts = []
    stage.connections.fate.clear()


def with_listener(stage: Stage, fate: Delivery) -> None:
    stage.connections.fate.clear()
    stage.socket("connect", connection="listener")
    for name in ("one", "another"):
        filter = {"kinds": [1, 1059, 20001], "#p": [public_key_of(BOB)]}
        stage.socket("req", "REQ", name, {"kinds": [1, 20001]}, filter, connection="listener")
    stage.connections.fate["listener"] = fate


def leave(stage: Stage, say: Any, who: str) -> None:
    """Gone in the middle of an answer, whatever was asked."""
    for verb, *parts in (
        ("REQ", "r", {"kinds": [1]}),
        ("CHANGES", "c", {"since": 0}),
        ("CHANGES", "c", {"since": 0, "live": True}),
    ):
        stage.connections.fate.clear()
        stage.socket("connect", connection=who)
        say("req", "REQ", "open", {"kinds": [1]})
        stage.connections.fate[who] = Delivery.GONE
        say("req" if verb == "REQ" else "changes", verb, *parts)
    stage.connections.fate.clear()
    stage.socket("connect", connection=who)


def reconcile(say: Any) -> None:
    for name in ("sync", "sync"):  # the second in the first one's place
        say("negentropy", "NEG-OPEN", name, {"kinds": [1]}, "6100000200")
    SEALED.clear()  # another container
    say("negentropy", "NEG-MSG", "sync", "6100000200")
    say("negentropy", "NEG-CLOSE", "sync")
    say("negentropy", "NEG-OPEN", "wrong", {"kinds": [1]}, "no hex")
    say("negentropy", "NEG-OPEN", "named", "f" * 64, "6100000200")
    say("negentropy", "NEG-OPEN", "private", {"kinds": [1059]}, "6100000200")


def web(stage: Stage) -> None:
    event = signed(content="by HTTP").as_dict()
    for version in range(2):
        profile = signed(kind=0, content=f"by HTTP {version}", created_at=START + 20 + version)
        stage.web("events", profile.as_dict())
    stage.web("events", event)
    stage.web("events", signed(kind=5, tags=[["e", str(event["id"])]]).as_dict())
    article = signed(kind=30023, tags=[["d", "web"]])
    stage.web("events", article.as_dict())
    stage.web("events", signed(kind=5, tags=[["a", f"30023:{article.pubkey}:web"]],
                               created_at=START + 30).as_dict())  # fmt: skip
    stage.web("quotes", {"event": event})
    stage.web("quotes", {"kind": 1, "size": 300})
    stage.web("info", method="GET", accept="application/nostr+json")
    stage.web("info", method="GET", path="/healthz")
    stage.web("info", method="OPTIONS", path="/ilp")


class Fulfilling:
    """Fulfils deliveries with a subscriber's key."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def reply(self, body: bytes) -> Response:
        data = decode_prepare(body).data
        relay = bytes.fromhex(public_key_of(OWNER))
        return Response(200, encode(Fulfill(delivery_fulfillment(self._secret, relay, data))))


def aether(stage: Stage) -> None:
    """Aether at every door: sockets, a Nostr client that asks, HTTP, streams."""

    def client(name: str, function: str = "default") -> AetherClient:
        stage.socket("connect", connection=name)
        return AetherClient(lambda frame: stage.frame(function, frame, name))

    def tell(name: str, kind: int) -> dict[str, Any]:
        return aether_world.as_body(aether_world.signed(content=name, kind=kind))

    plain, sealed = client("plain"), client("sealed")
    plain.publish(tell("by socket", 1))
    sealed.shake_hands()
    for listener in (plain, sealed):
        listener.subscribe("live", {"kinds": [1, 20001]})
    sealed.send({"type": "unsubscribe", "sub_id": "other"})
    owner = keys.owner_seed(OWNER)
    token = issue(
        owner, subject=keys.public_key(aether_world.ALICE), capability="relay:events:write",
        caveats={},
    )  # fmt: skip
    for kind in (1, 10001, 10001, 20001):
        event = aether_world.signed(kind=kind, content="by capability", created_at=next(_TIMES))
        plain.publish(event, [token])
        event = aether_world.signed(kind=kind, content="by HTTP", created_at=next(_TIMES))
        body = {"event": aether_world.as_body(event), "capability": [token]}
        stage.web("events", body)
    stage.socket("connect", connection="asking")
    for kind in (1, 20001):
        stage.socket("event", "EVENT", tell("by a Nostr client", kind), connection="asking")
        stage.socket("default", "EVENT", tell("and another", kind), connection="asking")
    stage.socket("req", "REQ", "r", {"aether": True, "kinds": [1]}, connection="asking")
    opened = stage.web("subscriptions", {"filters": [{"kinds": [1]}]})
    subscription_id = json.loads(opened["body"])["subscription_id"]
    stage.connections.take("sealed")
    for fate in (Delivery.DELIVERED, Delivery.BUSY):
        stage.connections.fate["sealed"] = fate
        stage.stream("fanout", Table.EVENTS)
    assert sealed.read(stage.connections.take_frames("sealed"))
    stage.connections.fate.clear()
    stage.deliver_parts()
    assert sealed.read(stage.connections.take_frames("sealed"))
    stage.stream("sequencer", Table.EVENTS)
    stage.clock.now += stage.agent.settings.aether_subscription_seconds * 2 // 3
    stage.web("stream", method="GET", query=f"subscription_id={subscription_id}")
    path = f"/v1/subscriptions/{subscription_id}"
    stage.web("subscriptions", method="DELETE", path=path)
    stage.web("quotes", {"event": tell("a quote", 1)})
    for name in ("plain", "sealed", "asking"):
        stage.socket("disconnect", connection=name)


_TIMES = itertools.count(START * 10**9)


def govern(stage: Stage) -> None:
    """What the owner does by HTTP: moderation, peers and purses."""
    owner, carol = bytes.fromhex(stage.agent.settings.secret_key), bytes([9] * 32)
    stage.store(signed(carol, content="to be removed"), signed(carol, content="and this"))
    banned = json.dumps({"method": "banpubkey", "params": [public_key_of(carol)]})
    reports = json.dumps({"method": "listeventsneedingmoderation", "params": []})
    stage.store(signed(kind=1984, tags=[["e", signed(content="reported").id]]))
    for body in (banned, reports):
        proof = nostr(stage.agent, owner, "POST", f"https://{HOST}/", body)
        stage.web("manage", body, path="/", authorization=proof,
                  content_type="application/nostr+json+rpc")  # fmt: skip
    path = "/v1/operator"
    proof = nostr(stage.agent, owner, "GET", f"https://{HOST}{path}")
    stage.web("operator", method="GET", path=path, authorization=proof)
    for action in (
        {"action": "set_peer", "id": PAYER.id, "active": True},
        {"action": "grant", "key": public_key_of(ALICE), "amount": "5", "mark": "a-mark-of-mine"},
        {"action": "freeze", "key": public_key_of(BOB)},
        *(
            {"action": "close", "owner": f"key:{public_key_of(SUBSCRIBER)}", "id": name}
            for name in ("push", "far 0", "far 1", "poor", "failing")
        ),
    ):
        body = json.dumps(action)
        proof = nostr(stage.agent, owner, "POST", f"https://{HOST}{path}", body)
        stage.web("operator", body, path=path, authorization=proof)


class Subscribing(Fulfilling):
    """Fulfils what a relay is asked for, with the relay's key."""

    def reply(self, body: bytes) -> Response:
        data = decode_prepare(body).data
        asking = bytes.fromhex(public_key_of(OWNER))
        return Response(200, encode(Fulfill(author_fulfillment(self._secret, asking, data))))


class NextHop:
    """Answers as it is told."""

    def __init__(self) -> None:
        self.answer: Response | Exception | Fulfilling = OutboundFailed("nobody is there")

    def post(self, _url: str, _headers: object, body: bytes, _timeout: float) -> Response:
        if isinstance(self.answer, Fulfilling):
            return self.answer.reply(body)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def call_back(self, *_: object) -> None:
        pass


def pay(stage: Stage) -> None:
    free = stage.agent
    next_hop = NextHop()
    stage.agent = replace(
        free, settings=replace(free.settings, price_per_byte=10), outbound=next_hop
    )
    agent = stage.agent
    agent.ledger.add_peer(PAYER)
    note = signed(content="paid")
    stage.web("events", signed(content="not paid").as_dict())  # told what it would cost
    for _ in range(2):  # the second is answered from the receipt
        stage.packet(packet(agent, note))
    for version in range(2):
        profile = signed(kind=0, content=f"paid {version}", created_at=START + 40 + version)
        stage.packet(packet(agent, profile))
    article = signed(kind=30023, tags=[["d", "paid"]])
    stage.packet(packet(agent, article))
    tags = [["e", note.id], ["a", f"30023:{article.pubkey}:paid"]]
    stage.packet(packet(agent, signed(kind=5, tags=tags, created_at=START + 50)))
    stage.packet(packet(agent, note, amount=1))
    stage.packet(packet(agent, note), token="nobody")
    stage.web("ilp", "", content_type="text/plain")
    asynchronous(stage)
    forward(stage, next_hop)
    settle(stage)
    fill_and_draw(stage)
    subscribe(stage, next_hop)


def subscribe(stage: Stage, next_hop: NextHop) -> None:
    """Paid subscriptions: by pull and by push, with a purse behind them, to their ends."""
    agent = stage.agent
    agent.ledger.add_peer(
        replace(PAYER, id="subscriber", token_hash=hash_token("s" * 43), ilp_address="g.sub",
                pubkey=public_key_of(SUBSCRIBER), endpoint="https://sub.example/ilp")
    )  # fmt: skip
    agent.purses.grant(public_key_of(SUBSCRIBER), 35, agent.now_ms, "grant")
    subscriber = Subscriber(agent)

    def send(message: Message, amount: int = 0) -> None:
        stage.clock.now += 1
        prepare = subscriber.packet(message, amount)
        stage.packet(replace(prepare, condition=prepare.condition))

    send(subscriber.req("pull", [{"kinds": [1]}], model=Model.STREAMING), 1010)
    stage.numbered(signed(content="to be pulled"))
    send(subscriber.req("pull", ttl=3600, pull=1), 100)
    send(subscriber.req("pull", [{"kinds": [1, 7]}], model=Model.STREAMING, pull=1), 1000)
    send(subscriber.req("pull", pull=50))  # until nothing is left
    send(subscriber.req("closed", [{"authors": [agent.settings.pubkey]}]), 1165)
    send(Close("closed", BtpPayment(), subscriber.metadata()))
    send(Count("count", (parse_filter({"kinds": [1]}),), BtpPayment(), subscriber.metadata()))
    next_hop.answer = OutboundFailed("nobody is there")
    push = {"reply_to": "g.sub", "model": Model.STREAMING}
    send(subscriber.req("push", [{"kinds": [1]}], **push), 2000)
    next_hop.answer = Fulfilling(SUBSCRIBER)
    for name, amount in (("push", 1310), ("poor", 1020), ("brief", 2000), ("failing", 2000)):
        ttl = 60 if name == "brief" else 3600
        send(subscriber.req(name, [{"kinds": [1]}], ttl=ttl, **push), amount)
        stage.deliver_woken()
    send(subscriber.req("push", [{"kinds": [7]}], **push), 1000)  # other filters
    send(subscriber.req("push", [{"kinds": [1]}], **push), 1000)
    agent.purses.grant(public_key_of(SUBSCRIBER), 35, agent.now_ms, "another")
    for number in range(8):
        stage.numbered(signed(content=f"to be pushed {number}"))
    stage.stream("push", Table.CHANGES)
    stage.deliver_woken()
    next_hop.answer = OutboundFailed("nobody is there")
    stage.numbered(signed(content="to nobody"))
    stage.stream("push", Table.CHANGES)
    stage.deliver_woken()
    stage.clock.now += 61
    stage.call("sweeper", {})
    stage.deliver_woken()
    propagate(stage, next_hop, send, subscriber)
    look_at_own(stage, subscriber)
    next_hop.answer = Response(200, encode(Fulfill(bytes(32))))


def look_at_own(stage: Stage, subscriber: Subscriber) -> None:
    """By HTTP: a list of them, and the end of one with a purse for what is left."""
    path = f"/v1/purses/{subscriber.pubkey}/subscriptions"
    for method, query in (("GET", ""), ("DELETE", "id=failing"), ("DELETE", "id=far%201")):
        url = f"https://{HOST}{path}{'?' if query else ''}{query}"
        proof = nostr(stage.agent, SUBSCRIBER, method, url)
        given = {"method": method, "path": path, "query": query, "authorization": proof}
        answer = stage.web("paid_subscriptions", **given)
        assert answer["statusCode"] == 200, answer


def propagate(
    stage: Stage, next_hop: NextHop, send: Callable[..., None], subscriber: Subscriber
) -> None:
    """A subscription that is passed on to another relay, which refuses it, and then does not."""
    agent = stage.agent
    settings = replace(agent.settings, subscription_propagate=True)
    stage.agent = replace(agent, settings=settings)
    upstream = bytes([11] * 32)
    peer = Peer("upstream", "8" * 64, ilp_address="g.upstream", pubkey=public_key_of(upstream),
                endpoint="https://upstream.example/ilp")  # fmt: skip
    agent.ledger.add_peer(peer)
    tags = [["asset_code", "USD"], ["asset_scale", "9"], *settings.subscription_fees.as_tags()]
    stage.store(signed(upstream, kind=10032, tags=tags, content="", created_at=agent.now))
    subscriber.agent = stage.agent
    for number, answer in enumerate((OutboundFailed("nobody is there"), Subscribing(upstream))):
        next_hop.answer = answer
        wanted = {"propagate": Propagation(1, 5000), "ttl": 600 + number}
        send(subscriber.req(f"far {number}", [{"kinds": [1, 9 + number]}], **wanted), 10_000)
        stage.deliver_woken()
    stage.agent = agent


def asynchronous(stage: Stage) -> None:
    agent = stage.agent
    endpoint = "https://payer.example/ilp"
    owner = bytes.fromhex(agent.settings.secret_key)
    secret = seal(owner, "asynchronous", b"x" * 43)
    agent.ledger.add_peer(
        Peer("asynchronous", hash_token("a" * 43), endpoint=endpoint, jwt_secret=secret)
    )
    for _ in range(2):  # a repeated request has one answer
        stage.packet(
            packet(agent, signed(content="later")), token="a" * 43, prefer="respond-async",
            request_id="r1", callback_url=endpoint,
        )  # fmt: skip


def forward(stage: Stage, next_hop: NextHop) -> None:
    agent = stage.agent
    owner, key = bytes.fromhex(agent.settings.secret_key), public_key_of(BOB)
    token = derived_token(owner, key, key)
    agent.ledger.add_peer(
        Peer("bob", hash_token(token), endpoint="https://bob.example/ilp", pubkey=key)
    )
    route = Route("g.agent.bob", key, key, 0, 1)
    agent.routes.replace("first", [route], agent.now, shrink_percent=50, force=True)
    fulfillment = bytes(32)
    for number, answer in enumerate(
        [OutboundFailed("gone"), Response(200, encode(Fulfill(fulfillment)))]
    ):
        next_hop.answer = answer
        onward = packet(
            agent, signed(content=f"onward {number}"), destination="g.agent.bob", amount=100_000
        )
        if number:
            onward = replace(onward, condition=condition_of(fulfillment))
        stage.packet(onward)
        stage.packet(onward)
    stage.packet(packet(agent, signed(), destination="g.agent.nobody"))


def settle(stage: Stage) -> None:
    headers = {"authorization": f"Bearer {'s' * 43}", "idempotency_key": "k1"}
    body = {"amount": "1000", "scale": 9}
    for _ in range(2):
        stage.web("settlements", body, path=f"/accounts/{PAYER.id}/settlements", **headers)
    stage.web("settlements", body, path="/accounts/nobody/settlements", **headers)


def fill_and_draw(stage: Stage) -> None:
    """Purses, filled in every way, looked at, and drawn from at every door."""
    agent, alice = stage.agent, public_key_of(ALICE)
    stage.packet(fill_packet(agent, 10**6))
    headers = {"authorization": f"Bearer {'p' * 43}", "idempotency_key": "k1"}
    credited = {"amount": "1000000", "scale": 9}
    stage.web("credits", credited, path=f"/v1/purses/{alice}/credits", **headers)
    stage.web("purse", method="GET", path=f"/purse/{alice}", accept="application/spsp4+json")
    path = f"/v1/purses/{alice}"
    look = nostr(agent, ALICE, "GET", f"https://{HOST}{path}")
    stage.web("purses", method="GET", path=path, authorization=look)
    stage.web("quotes", {"purse": alice})
    for function in ("event", "default"):
        draw_by_socket(stage, function)
    draw_by_http(stage)


def drawn_events(who: str) -> list[Event]:
    """Of the author's own and of another's, ephemeral, and what gives room back."""
    return [
        signed(content=f"{who} pays"),
        signed(bytes([5] * 32), content=f"{who} sends"),
        signed(kind=20002, content=who),
        signed(kind=5, content=who, tags=[["a", f"30023:{public_key_of(ALICE)}:none"]]),
        signed(kind=62, content=who),
    ]


def draw_by_socket(stage: Stage, function: str) -> None:
    who = f"purse of {function}"
    stage.socket("connect", connection=who)
    stage.socket("auth", "CLOSE", "greeted", connection=who)
    connection = stage.agent.sessions.get(who)
    assert connection is not None
    tags = [["relay", f"wss://{HOST}"], ["challenge", connection.challenge]]
    for secret in (ALICE, BOB):
        login = signed(secret, kind=22242, content="", tags=tags, created_at=stage.agent.now)
        stage.socket("auth", "AUTH", login.as_dict(), connection=who)
    for event in drawn_events(who):
        stage.socket(function, "EVENT", event.as_dict(), connection=who)


def draw_by_http(stage: Stage) -> None:
    for fate in (Delivery.DELIVERED, Delivery.GONE):
        stage.socket("connect", connection="hears")
        stage.socket("req", "REQ", "passing", {"kinds": [20002]}, connection="hears")
        stage.connections.fate["hears"] = fate
        for event in drawn_events(f"HTTP {fate}"):
            body = json.dumps(event.as_dict())
            sign = nostr(stage.agent, ALICE, "POST", f"https://{HOST}/v1/events", body)
            stage.web("events", event.as_dict(), path="/v1/events", authorization=sign)
    stage.connections.fate.clear()


def keep_up(stage: Stage) -> None:
    agent = stage.agent
    for number in range(2):
        agent.ledger.hold(
            Hold(PAYER.id, f"{number}" * 64, 100, int(stage.clock() * 1000) + 1000), 10**15
        )
    vanish(stage)
    stage.clock.now += 60
    stage.call("sweeper", {})
    follow(stage)


def vanish(stage: Stage) -> None:
    """A key asks to vanish. One call does not remove all that it wrote."""
    stage.store(
        *(signed(BOB, content=f"of bob {n}") for n in range(2)),
        signed(ALICE, kind=1059, tags=[["p", public_key_of(BOB)]]),
        signed(BOB, kind=62, tags=[["relay", "ALL_RELAYS"]]),
        signed(bytes([7] * 32), kind=62, tags=[["relay", "ALL_RELAYS"]]),  # with nothing here
    )
    stage.stream("sequencer", Table.EVENTS)


class Neighbour:
    """The relay of a followed agent."""

    def __init__(self, *events: Event) -> None:
        self.events = [json.loads(event.to_json()) for event in events]

    def read(self, *_: object) -> list[Any]:
        return self.events


def follow(stage: Stage) -> None:
    """Someone is followed, says where they take packets, moves, is owed money, and is left; and
    the routing table ages."""
    settings = replace(
        stage.agent.settings, settlement_url="https://engine.example", settlement_threshold=1,
        purse_idle_days=1,
    )  # fmt: skip
    alice, first = public_key_of(ALICE), stage.agent.now
    for step in range(3):
        stage.clock.now += 60
        tags = [["p", alice, "wss://alice.example"]] if step < 2 else []
        stage.store(signed(OWNER, kind=3, content="", tags=tags, created_at=first + step))
        endpoint = f"https://alice{step}.example/ilp"
        claims = [["ilp_address", "g.agent.alice"], ["ilp_endpoint", endpoint],
                  ["asset_code", "USD"], ["asset_scale", "9"]]  # fmt: skip
        stage.agent = replace(
            stage.agent,
            settings=replace(settings, forward_fee=step),  # something to say
            relays=Neighbour(signed(kind=10032, tags=claims, created_at=first + step)),
        )
        stage.call("upkeep", {})
        stage.web("routes", method="GET", path="/v1/routes")
    stage.clock.now += GENERATION_SECONDS // 2
    stage.call("upkeep", {})
    read_and_broadcast(stage)


class Elsewhere:
    """One relay, wherever one is looked for: it has numbers, and an ILP address."""

    def __init__(self, *events: Event) -> None:
        self.there = RelayElsewhere(events)

    def information(self, *_: object) -> dict[str, Any]:
        ilp = {"address": "g.agent.bob", "endpoint": "https://bob.example/ilp",
               "asset_code": "USD", "asset_scale": 9}  # fmt: skip
        fees = {"publication_per_byte": {"amount": 1}}
        nips = ["CF", 77]
        return {"supported_nips": nips, "ilp": ilp, "fees": fees, "self": public_key_of(BOB)}

    @contextmanager
    def session(self, *_: object) -> Iterator[RelayElsewhere]:
        yield self.there

    def read(self, _url: str, filters: Any, _limits: object) -> list[Any]:
        return list(self.there.read(filters))


def read_and_broadcast(stage: Stage) -> None:
    """What somebody followed has written is read twice; what the owner writes is offered to a hub
    that does not answer."""
    now = stage.agent.now
    stage.store(signed(OWNER, kind=3, tags=[["p", public_key_of(ALICE), "wss://alice.example"]],
                       created_at=now))  # fmt: skip
    profiles = [signed(ALICE, kind=0, content=f"{n}", created_at=now - 9 + n) for n in range(2)]
    note = signed(ALICE, content="read elsewhere", created_at=now)
    deletion = signed(ALICE, kind=5, tags=[["e", note.id]], created_at=now)
    elsewhere = Elsewhere(note, profiles[0])
    stage.agent = replace(
        stage.agent,
        settings=replace(stage.agent.settings, follow_content="cache", broadcast_all=True,
                         broadcast_hubs=("wss://hub.example",)),
        relays=elsewhere,
    )  # fmt: skip
    for _ in range(2):
        stage.call("feeds", {})
        elsewhere.there.events += [profiles[1], deletion]
    stage.call("outbox", {})
    stage.broadcast_woken()  # the first look, which sees nothing
    stage.store(signed(OWNER, content="for the hub", created_at=now))
    stage.stream("sequencer", Table.EVENTS)
    for _ in range(3):  # it is written down, attempted, and attempted once more
        stage.broadcast_woken()
    stage.clock.now += 3600
    stage.call("outbox", {})
    follow = replace(stage.agent.settings, follow_content="rebroadcast")
    stage.agent = replace(stage.agent, settings=follow)
    elsewhere.there.events.append(signed(ALICE, content="passed on", created_at=stage.agent.now))
    stage.call("feeds", {})
    told = [to.why[:3] for each in stage.agent.outbox.broadcasts(9) for to in each.deliveries]
    assert "F05" in told  # the next hop knows one fulfillment only


def test_every_function_has_its_line() -> None:
    folders = {path.parent.name for path in ROOT.glob("functions/*/handler.py")}
    assert set(TABLES) == folders - WITHOUT_TABLES


@pytest.mark.parametrize("function", sorted(TABLES))
def test_what_a_function_does_is_permitted_and_no_more(stage: Stage, function: str) -> None:
    permitted = {(table, action) for table, some in TABLES[function].items() for action in some}
    done = stage.used.get(function, set())
    assert done - permitted == set()
    assert permitted - done == set()


def test_those_who_post_may_and_others_may_not(stage: Stage) -> None:
    assert stage.posted == POSTING


def test_those_who_leave_recipients_to_later_calls_may_and_others_may_not(stage: Stage) -> None:
    assert stage.handed_over == SENDING["recipients"]


def test_those_who_wake_the_outbox_may_and_others_may_not(stage: Stage) -> None:
    assert stage.waking_outbox == SENDING["broadcasts"]


def test_those_who_wake_paid_subscriptions_may_and_others_may_not(stage: Stage) -> None:
    assert stage.waking == SENDING["deliveries"]


@pytest.mark.parametrize("function", sorted(KEY - {"identity"}))
def test_those_who_have_the_key_need_it(
    function: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tests.infra.recording.KEY", KEY - {function})
    monkeypatch.setattr("tests.infra.recording.DERIVED_KEYS", DERIVED_KEYS | {function})
    stage = new_stage(tmp_path)
    with pytest.raises((ValueError, AssertionError)):
        live(stage)
    stage.engine.inner.close()


@pytest.mark.parametrize("function", sorted(DERIVED_KEYS))
def test_those_who_have_derived_keys_need_them(
    function: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tests.infra.recording.DERIVED_KEYS", DERIVED_KEYS - {function})
    stage = new_stage(tmp_path)
    with pytest.raises((ValueError, AssertionError)):
        live(stage)
    stage.engine.inner.close()
