"""What the relay's verbs use, measured by running them: an agent in memory runs each verb a hundred
times, and a counting engine, a meter and a clock measure it.

Amounts that cannot be measured without AWS are assumed below.
"""

import io
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from statistics import median

import orjson

from farthing.aether import keys, messages, noise
from farthing.aether.events import sign_event as sign_aether
from farthing.aether.messages import Envelope, Format
from farthing.agent.broadcast import answer_wake, broadcast, wake_outbox
from farthing.agent.feeds import read_feeds
from farthing.agent.upkeep import run_duties
from farthing.aws.meter import PowertoolsMeter
from farthing.btp_nips.codec import encode as encode_message
from farthing.btp_nips.conditions import delivery_fulfillment
from farthing.btp_nips.identity import key_owner
from farthing.btp_nips.messages import Metadata, Req
from farthing.btp_nips.messages import Payment as BtpPayment
from farthing.btp_nips.models import Model
from farthing.connector.client import PreparedPayment, RelayTerms, prepare_payment
from farthing.connector.requests import OCTETS, receive_packet
from farthing.connector.subscriptions.pushing import deliver
from farthing.context import Agent
from farthing.ilp.condition import author_fulfillment, condition_of
from farthing.ilp.packet import Fulfill, decode_prepare, decode_reply, encode
from farthing.nostr.events import Event, sign_event
from farthing.nostr.filters import parse_filter
from farthing.nostr.negentropy import Initiator, SealedVector
from farthing.ports.connections import Delivery, Frame, NumberedFrame
from farthing.ports.meter import Metric
from farthing.ports.outbound import Response
from farthing.relay.aether.streams import (
    filters_of,
    find_subscription,
    open_subscription,
    read_log,
)
from farthing.relay.caller import Caller
from farthing.relay.connect import connect, disconnect
from farthing.relay.fan_out import fan_out, push_changes
from farthing.relay.receive import receive
from farthing.relay.sealed_sets import SEALED
from farthing.relay.sequence import number_events
from farthing.relay.verbs import VERBS
from farthing.settings import Settings
from farthing.store.attributes import item_size
from farthing.store.changes import MOST_AT_ONCE, Arrival
from farthing.store.ledger import Peer, hash_token
from farthing.store.memory import MemoryEngine
from farthing.store.outbox import DeliveryState
from farthing.store.table import VOLATILE, Item, Put, TransactWrite
from farthing.surface import ANSWERED
from infra.costs.bill import Usage
from infra.costs.counting import CountingEngine
from infra.costs.prices import Unit

# Assumed. By Lambda's documentation, a function of 1,769 MB has one full vCPU.
FULL_CORE_MB = 1769
# For a request from a function to DynamoDB or to a connection: the wait, and the CPU time.
ROUND_TRIP_MICROSECONDS = 5_000
POST_MICROSECONDS = 10_000
REQUEST_CPU_MICROSECONDS = 1_000
POSTS_SIDE_BY_SIDE = 16
# Bytes that Lambda logs for each call, and the APIs for each request and message.
PLATFORM_LOG_BYTES = 400
ACCESS_LOG_BYTES = 250
# The head and the body of a stream's answer without events.
STREAM_BYTES = 600
# Assumed for the function that checks the origin of a connection: megabytes and milliseconds.
ORIGIN_MEGABYTES, ORIGIN_MILLISECONDS = 256, 5
# Bytes that DynamoDB adds to each stored item.
ITEM_BYTES = 100

MILLION = 10**6
_TURNS = 100
_RESULTS = 100
_SUBSCRIBERS = 50
_SYNCED = 1000
_FRAME = 32 * 1024  # API Gateway's message
_HOST = "relay.example"
_OWNER, _ALICE = bytes([1] * 32), bytes([2] * 32)
_TAGS = (("e", "b" * 64), ("p", "c" * 64))
_TEXT = "A note as people write them: a sentence or two, and then one more for good measure."
_TOKEN = "cost-token-0123456789-abcdefghijklmnopqrstuvwxyz"  # noqa: S105, of a peer in memory


def _clock() -> float:
    """Always the same moment: neither the day nor the machine's speed changes an amount."""
    return 1_800_000_000.0


@dataclass(frozen=True)
class Place:
    """The functions' megabytes by name, and whether CloudFront is in front of them."""

    memory: Mapping[str, int]
    edge: bool = True


@dataclass(frozen=True)
class Measured:
    """What a million operations use, and which custom metrics they publish."""

    usage: Usage
    metrics: frozenset[str] = frozenset()


class _Clients:
    """The port to clients: accepts every frame and records its length."""

    carries_replies = False
    frames_fail_alone = True

    def __init__(self) -> None:
        self.frames: list[int] = []

    def post(self, _connection_id: str, frames: Iterable[Frame]) -> Delivery:
        written = (each.write() if isinstance(each, NumberedFrame) else each for each in frames)
        self.frames += [_size(frame) for frame in written]
        return Delivery.DELIVERED

    def post_in_order(
        self, connection_id: str, frames: Iterable[Frame], *, live: bool = False
    ) -> Delivery:
        return self.post(connection_id, frames)

    def post_each(self, frames: Iterable[tuple[str, Frame]]) -> dict[str, Delivery]:
        self.post("", [frame for _, frame in frames])
        return {}

    def close(self, _connection_id: str) -> None: ...


class _Subscriber:
    """The port to other connectors: fulfils deliveries with the subscriber's key."""

    def __init__(self, relay: str) -> None:
        self._relay = bytes.fromhex(relay)

    def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        data = decode_prepare(body).data
        return Response(200, encode(Fulfill(delivery_fulfillment(_ALICE, self._relay, data))))

    def call_back(
        self, url: str, headers: Mapping[str, str], body: bytes, seconds: float
    ) -> None: ...


class _Hub:
    """A relay that we pay: its information document, its connector and its key."""

    KEY = bytes([3] * 32)
    URL = "wss://hub.example"
    PRICE = 10

    def __init__(self) -> None:
        self.pubkey = sign_event(self.KEY, kind=1, content="", created_at=0, tags=()).pubkey

    def information(self, _url: str, _seconds: float) -> Mapping[str, object]:
        ilp = {"address": "g.hub", "endpoint": "https://hub.example/ilp",
               "asset_code": "USD", "asset_scale": 9}  # fmt: skip
        fees = {"publication_per_byte": {"amount": self.PRICE}}
        return {"ilp": ilp, "fees": fees, "self": self.pubkey}

    def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        data = decode_prepare(body).data
        fulfillment = author_fulfillment(_OWNER, bytes.fromhex(self.pubkey), data)
        return Response(200, encode(Fulfill(fulfillment)))

    def call_back(
        self, url: str, headers: Mapping[str, str], body: bytes, seconds: float
    ) -> None: ...


class _Weighed(MemoryEngine):
    """Counts the bytes that it keeps permanently."""

    kept = 0

    def _apply(self, write: TransactWrite, standing: Item | None) -> Item | None:
        if isinstance(write, Put) and write.table not in VOLATILE:
            old = self.get(write.table, write.pk, write.sk)
            before = item_size(write.pk, write.sk, old) + ITEM_BYTES if old else 0
            self.kept += item_size(write.pk, write.sk, write.item) + ITEM_BYTES - before
        return super()._apply(write, standing)


class _NoiseClient:
    """A connection with a Noise session. Its frames can be made before the measurement."""

    def __init__(
        self, agent: Agent, name: str, send: Callable[[str, str], str | bytes | None]
    ) -> None:
        self.name = name
        self._agent = agent
        self._count = iter(range(10**9))
        connect(agent, name, _HOST, is_aether=True)
        hello = messages.hello(["json"], noise_pubkey=None)
        welcome = str(send(name, hello.octets.decode()))
        prologue = noise.prologue(hello.octets, welcome.encode())
        state = noise.start(initiator=True, prologue=prologue)
        state, first = noise.write_message(state, _ALICE, _OWNER)
        answer = orjson.loads(send(name, self._noise(first)) or "")
        state, _ = noise.read_message(state, _ALICE, bytes.fromhex(answer["payload_hex"]))
        state, third = noise.write_message(state, _ALICE)
        send(name, self._noise(third))
        self._key = noise.finish(state).send_key

    @staticmethod
    def _noise(payload: bytes) -> str:
        return str(messages.write(messages.noise_message(payload), Envelope(Format.JSON)))

    def publish(self, seed: bytes, content: str, tags: Sequence[Sequence[str]], number: int) -> str:
        event = sign_aether(
            seed, kind=1, content=content, tags=tags, created_at=self._agent.now_ns - number
        )
        inner = messages.publish(event.as_dict())
        return self._noise(noise.seal(self._key, next(self._count), inner.octets))


class Scene:
    """One relay in memory, and all measured operations on it."""

    def __init__(self, place: Place, settings: Settings) -> None:
        self._place = place
        self._clients = _Clients()
        self._stored = _Weighed(clock=_clock)
        self.engine = CountingEngine(self._stored)
        own = Settings(
            secret_key=_OWNER.hex(), requests_per_second=0, packets_per_minute=MILLION,
            price_per_byte=settings.price_per_byte or 1,
        )  # fmt: skip
        self.agent = Agent(
            own, self.engine, self._clients, _Subscriber(own.pubkey),
            meter=PowertoolsMeter(own.table_prefix), clock=_clock,
        )  # fmt: skip
        self._moment = self.agent.now_ms
        self._numbers = iter(range(10**9))
        self.agent.ledger.add_peer(Peer("payer", hash_token(_TOKEN)))
        self._pay(self._packet(), [])  # so that the balance item exists
        with redirect_stdout(io.StringIO()):
            self._flush()

    def _run(self, function: str, calls: Sequence[Callable[[], object]]) -> Measured:
        """Run the calls of a function, and compute what a million such calls use."""
        memory = self._place.memory[function]
        cpu, logged, metrics = [], 0, set()
        self.engine.reset()
        self._clients.frames = []
        for call in calls:
            written = io.StringIO()
            started = time.process_time_ns()
            with redirect_stdout(written):
                call()
                self._flush()
            cpu.append(time.process_time_ns() - started)
            logged += len(written.getvalue()) + PLATFORM_LOG_BYTES
            metrics |= _metrics_in(written.getvalue())
        cost, frames = self.engine.reset(), self._clients.frames
        number = len(calls)
        busy = int(median(cpu)) // 1000 + _each(
            (cost.requests + len(frames)) * REQUEST_CPU_MICROSECONDS, number
        )
        waits = _each(cost.round_trips * ROUND_TRIP_MICROSECONDS, number)
        waits += _each(-(-len(frames) // POSTS_SIDE_BY_SIDE) * POST_MICROSECONDS, number)
        slowed = busy * FULL_CORE_MB // min(memory, FULL_CORE_MB)
        milliseconds = -(-(slowed + waits) // 1000)
        usage: Usage = Counter({
            Unit.WRITE_UNITS: _per_million(cost.write_units, number),
            Unit.READ_UNITS: _per_million(cost.read_units, number),
            Unit.FUNCTION_CALLS: MILLION,
            Unit.FUNCTION_TIME: MILLION * memory * milliseconds,
            Unit.SOCKET_MESSAGES: _per_million(sum(map(_messages, frames)), number),
            Unit.EDGE_BYTES: _per_million(sum(frames), number) if self._place.edge else 0,
            Unit.LOGGED_BYTES: _per_million(logged, number),
            Unit.KEPT_LOG_BYTES: _per_million(logged, number),
        })  # fmt: skip
        return Measured(+usage, frozenset(metrics))

    def _flush(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Powertools warns if there is nothing to publish
            self.agent.meter.flush()  # type: ignore[attr-defined]

    # Operations of clients

    def _note(self) -> Event:
        number = next(self._numbers)
        return sign_event(
            _ALICE, kind=1, content=f"{_TEXT} {number:09}", tags=_TAGS,
            created_at=self.agent.now - 10**6 + number,
        )  # fmt: skip

    def _frame(self, connection: str, *parts: object) -> str | bytes | None:
        return self._text_frame(connection, orjson.dumps(parts).decode())

    def _text_frame(self, connection: str, text: str) -> str | bytes | None:
        self._moment += 1
        caller = Caller(self.agent, connection, self._moment, _HOST)
        return receive(self.agent, caller, text, VERBS)

    def _connected(self, name: str) -> str:
        connect(self.agent, name, _HOST)
        self._frame(name, "CLOSE", "first")  # the challenge goes with the first message
        return name

    def _answer(self, connection: str, *parts: object) -> str | bytes:
        """The answer in the route's response; empty if the route posts its answers."""
        answer = self._frame(connection, *parts) or ""
        if answer and parts[0] not in ANSWERED:
            self._clients.post(connection, [answer])
            return ""
        return answer

    def _message(
        self, function: str, messages: Iterable[Sequence[object]], logged_in_as: str = ""
    ) -> Measured:
        """Messages of one connection: the frame in, the frames out, and the answer."""
        name = self._connected(f"{function} {next(self._numbers)}")
        connection = self.agent.sessions.get(name)
        if logged_in_as and connection is not None:
            self.agent.sessions.authenticate(connection, logged_in_as)
        given = list(messages)
        answers: list[str | bytes] = []

        def ask(parts: Sequence[object]) -> None:
            answers.append(self._answer(name, *parts))

        run = self._run(
            function,
            [partial(ask, parts) for parts in given],
        )  # fmt: skip
        size = sum(map(_size, answers))
        arrived = sum(_messages(len(orjson.dumps(parts))) for parts in given)
        answered = sum(_messages(len(answer)) for answer in answers if answer)
        run.usage[Unit.SOCKET_MESSAGES] += _per_million(arrived + answered, len(given))
        _log_access(run.usage)
        if self._place.edge:
            run.usage[Unit.EDGE_BYTES] += _per_million(size, len(given))
        return run

    def free_write(self) -> Measured:
        """EVENT of the owner, which is free."""
        events = [
            sign_event(_OWNER, kind=1, content=f"{_TEXT} {number:09}", tags=_TAGS,
                       created_at=self.agent.now - number)
            for number in range(_TURNS)
        ]  # fmt: skip
        return self._message("event", [("EVENT", event.as_dict()) for event in events])

    def purse_write(self) -> Measured:
        """EVENT on a connection that is logged in, paid from the author's purse."""
        notes = [self._note() for _ in range(_TURNS)]
        author = notes[0].pubkey
        self.agent.purses.grant(author, 10**15, self.agent.now_ms, "cost")
        messages = [("EVENT", note.as_dict()) for note in notes]
        run = self._message("event", messages, logged_in_as=author)
        if len(list(self.agent.purses.movements(author))) != 1 + _TURNS:
            raise RuntimeError("a note was not paid from its purse")
        return run

    def request(self) -> Measured:
        """REQ of an author's last hundred notes."""
        self.store(_RESULTS)
        author = self._note().pubkey
        asked = {"authors": [author], "kinds": [1], "limit": _RESULTS}
        return self._message("req", [("REQ", "r", asked) for _ in range(_TURNS // 10)])

    def subscription(self) -> Measured:
        """REQ for new events only, and its CLOSE."""
        asked = {"authors": ["d" * 64], "limit": 0}
        opened = self._message("req", [("REQ", str(n % 10), asked) for n in range(_TURNS)])
        closed = self._message("close", [("CLOSE", str(n % 10)) for n in range(_TURNS)])
        return Measured(opened.usage + closed.usage)

    def count(self) -> Measured:
        """COUNT of a hundred notes."""
        self.store(_RESULTS)
        asked = {"kinds": [1], "authors": [self._note().pubkey]}
        return self._message("count", [("COUNT", "c", asked)] * (_TURNS // 10))

    def sync(self) -> Measured:
        """NEG-OPEN of a client that has the same events, and NEG-CLOSE."""
        SEALED.clear()  # of other scenes in this process
        notes = [self._note() for _ in range(_SYNCED)]
        self._save(notes)
        first = Initiator(SealedVector.seal([(e.created_at, bytes.fromhex(e.id)) for e in notes]))
        asked = {"authors": [notes[0].pubkey], "since": min(e.created_at for e in notes)}
        opened = self._message(
            "negentropy", [("NEG-OPEN", "n", asked, first.initiate().hex())] * (_TURNS // 10)
        )
        closed = self._message("negentropy", [("NEG-CLOSE", "n")] * _TURNS)
        return Measured(opened.usage + closed.usage)

    def connection(self) -> Measured:
        """A connection that is opened, gets its challenge with the first message, and is closed."""
        names = [f"passing {number}" for number in range(_TURNS)]
        opened = self._run("connect", [partial(connect, self.agent, n, _HOST) for n in names])
        first = self._run("close", [partial(self._frame, n, "CLOSE", "x") for n in names])
        closed = self._run("disconnect", [partial(disconnect, self.agent, n) for n in names])
        usage = opened.usage + first.usage + closed.usage
        usage[Unit.SOCKET_MESSAGES] += MILLION  # the first message itself
        _log_access(usage, 3)
        if self._place.edge:
            usage[Unit.EDGE_REQUESTS] += MILLION
            usage[Unit.EDGE_CALLS] += MILLION
            usage[Unit.FUNCTION_CALLS] += MILLION
            usage[Unit.FUNCTION_TIME] += MILLION * ORIGIN_MEGABYTES * ORIGIN_MILLISECONDS
        return Measured(usage)

    def noise_frame(self) -> Measured:
        """PUBLISH of the owner's, inside Noise."""
        client = _NoiseClient(self.agent, f"sealed {next(self._numbers)}", self._text_frame)
        seed = keys.owner_seed(_OWNER)
        frames = [client.publish(seed, f"{_TEXT} {n:09}", _TAGS, n) for n in range(_TURNS)]
        send = partial(self._text_frame, client.name)
        run = self._run("default", [partial(send, frame) for frame in frames])
        run.usage[Unit.SOCKET_MESSAGES] += MILLION  # the frame that came
        return run

    def stream_poll(self) -> Measured:
        """GET /v1/stream that finds nothing new."""
        opened = open_subscription(self.agent, {"filters": [{"kinds": [1]}]}, ip=None)
        filters = filters_of(find_subscription(self.agent, opened))

        def poll() -> None:
            find_subscription(self.agent, opened)
            read_log(self.agent, filters, 0)

        run = self._run("stream", [poll] * _TURNS)
        run.usage[Unit.HTTP_REQUESTS] += MILLION
        run.usage[Unit.LOGGED_BYTES] += MILLION * ACCESS_LOG_BYTES
        run.usage[Unit.KEPT_LOG_BYTES] += MILLION * ACCESS_LOG_BYTES
        if self._place.edge:
            run.usage[Unit.EDGE_REQUESTS] += MILLION
            run.usage[Unit.EDGE_BYTES] += MILLION * STREAM_BYTES
        return run

    # Operations of peers

    def paid_write(self) -> Measured:
        """POST /ilp: a note with two tags, and its payment."""
        packets = [self._packet() for _ in range(_TURNS)]
        sizes: list[int] = []
        run = self._run("ilp", [partial(self._pay, p, sizes) for p in packets])
        run.usage[Unit.HTTP_REQUESTS] += MILLION
        _log_access(run.usage)
        if self._place.edge:
            run.usage[Unit.EDGE_REQUESTS] += MILLION
            run.usage[Unit.EDGE_CALLS] += MILLION
            run.usage[Unit.EDGE_BYTES] += _per_million(sum(sizes), len(sizes))
        return run

    def _packet(self) -> bytes:
        return encode(self._payment().prepare)

    def _payment(self) -> PreparedPayment:
        own = self.agent.settings
        terms = RelayTerms(own.own_ilp_address, own.ilp_url, own.pubkey, own.tariff)
        now = datetime.fromtimestamp(_clock(), UTC)
        return prepare_payment(self._note(), _ALICE, terms, now)

    def _pay(self, packet: bytes, sizes: list[int]) -> None:
        headers = {"content-type": OCTETS, "authorization": f"Bearer {_TOKEN}"}
        answer = receive_packet(self.agent, headers, packet)
        if not isinstance(decode_reply(answer.body), Fulfill):
            raise RuntimeError("a paid note was not stored")
        sizes.append(len(answer.body))

    def note_size(self) -> int:
        """Bytes that a payer pays for."""
        return len(self._payment().prepare.data)

    # Work after an event is stored

    def store(self, number: int) -> list[Event]:
        notes = [self._note() for _ in range(number)]
        self._save(notes)
        return notes

    def _save(self, notes: Iterable[Event]) -> None:
        for note in notes:
            self.agent.events.save(note)

    def numbering(self, at_once: int = 1) -> Measured:
        """A million events numbered, with this many events in each call."""
        batches = [
            [_arrival(note) for note in self.store(at_once)] for _ in range(_TURNS // at_once)
        ]
        run = self._run("sequencer", [partial(number_events, self.agent, b) for b in batches])
        return Measured(Counter({unit: -(-each // at_once) for unit, each in run.usage.items()}))

    def full_batches(self) -> Measured:
        return self.numbering(MOST_AT_ONCE)

    def looking_for_subscriptions(self) -> Measured:
        """The fan-out of an event that no subscription matches."""
        notes = [self._note() for _ in range(_TURNS)]
        return self._run("fanout", [partial(fan_out, self.agent, [n]) for n in notes])

    def paid_delivery(self) -> Measured:
        """One event to a paid subscription by push."""
        key = sign_event(_ALICE, kind=1, content="", created_at=0, tags=()).pubkey
        peer = Peer("subscriber", hash_token("of nobody"), "g.subscriber",
                    "https://subscriber.example/ilp", pubkey=key)  # fmt: skip
        self.agent.ledger.add_peer(peer)
        metadata = Metadata(self.agent.now, sender=key, reply_to="g.subscriber")
        filters = (parse_filter({"authors": [key], "limit": 0}),)
        data = encode_message(Req("s", filters, BtpPayment(model=Model.STREAMING), metadata))
        relay = bytes.fromhex(self.agent.settings.pubkey)
        prepare = replace(
            self._payment().prepare, amount=10**6, data=data,
            condition=condition_of(author_fulfillment(_ALICE, relay, data)),
        )  # fmt: skip
        self._pay(encode(prepare), [])
        subscribed = key_owner(key), "s"

        def bring() -> None:
            deliver(self.agent, *subscribed)

        bring()  # EOSE
        runs = []
        for note in self.store(_TURNS // 5):
            number_events(self.agent, [_arrival(note)])
            runs.append(self._run("deliveries", [bring]))
        total = sum((run.usage for run in runs), Counter[Unit]())
        return Measured(Counter({unit: -(-each // len(runs)) for unit, each in total.items()}))

    def placement(self) -> Measured:
        """One event of the owner at one relay that is paid for it, by a wake of the outbox."""
        hub = _Hub()
        hubs = replace(
            self.agent.settings, broadcast_hubs=(hub.URL,), broadcast_shares={"hubs": 100}
        )
        agent = replace(self.agent, settings=hubs, relays=hub, outbound=hub)  # type: ignore[arg-type]
        agent.ledger.add_peer(
            Peer("hub", hash_token("of a hub"), "g.hub", "https://hub.example/ilp",
                 pubkey=hub.pubkey)
        )  # fmt: skip
        calls = []
        for number in range(_TURNS // 5):
            note = sign_event(
                _OWNER, kind=1, content=f"{_TEXT} {number:09}", tags=_TAGS,
                created_at=agent.now - number,
            )  # fmt: skip
            agent.events.save(note)
            broadcast(agent, note)
            calls.append(partial(answer_wake, agent, note.id))
        measured = self._run("broadcasts", calls)
        (*_, last) = agent.outbox.broadcasts(len(calls))
        assert [each.state for each in last.deliveries] == [DeliveryState.STORED], last
        return measured

    def delivery(self) -> Measured:
        """The additional use of a fan-out for each subscription that matches the event."""
        alone = self.looking_for_subscriptions().usage
        for number in range(_SUBSCRIBERS):
            name = self._connected(f"reader {number}")
            self._frame(name, "REQ", "x", {"authors": [self._note().pubkey], "limit": 0})
        notes = [self._note() for _ in range(_TURNS // 5)]
        wanted = self._run("fanout", [partial(fan_out, self.agent, [n]) for n in notes]).usage
        for number in range(_SUBSCRIBERS):
            disconnect(self.agent, f"reader {number}")
        return Measured(
            Counter({
                unit: max(0, wanted[unit] - alone[unit]) // _SUBSCRIBERS for unit in wanted
            })
        )  # fmt: skip

    def push(self) -> Measured:
        """A new entry of the log to one live CHANGES subscription."""
        name = self._connected("live")
        self._frame(name, "CHANGES", "live", {"kinds": [1], "live": True, "since": 0})
        used: Usage = Counter()
        for note in self.store(_TURNS):
            number_events(self.agent, [_arrival(note)])
            last = self.agent.changes.last_number()
            new = list(self.agent.changes.between(last - 1, last))
            # One by one, because a push sends a feed everything up to the end of the log.
            used += self._run("push", [partial(push_changes, self.agent, new)]).usage
        disconnect(self.agent, name)
        return Measured(Counter({unit: -(-each // _TURNS) for unit, each in used.items()}))

    def kept_bytes(self) -> int:
        """Bytes that a paid note adds to the tables, its number and its receipt included."""
        before = self._stored.kept
        self._pay(self._packet(), [])
        number_events(self.agent, [_arrival(self.store(1)[0])])
        paid_and_another = self._stored.kept - before
        before = self._stored.kept
        self.store(1)
        return paid_and_another - (self._stored.kept - before)

    # Scheduled calls

    def sweep(self) -> Measured:
        def sweep() -> None:
            released = self.agent.ledger.release_expired(self.agent.now_ms)
            self.agent.meter.count(Metric.HOLDS_RELEASED, released)
            self.agent.meter.count(Metric.REVENUE, 0)

        return self._run("sweeper", [sweep] * _TURNS)

    def outbox(self) -> Measured:
        """A run of the outbox with nothing due."""
        return self._run("outbox", [lambda: wake_outbox(self.agent)] * _TURNS)

    def feeds(self) -> Measured:
        """A run of an agent that reads no relays."""
        return self._run("feeds", [lambda: read_feeds(self.agent)] * _TURNS)

    def upkeep(self) -> Measured:
        """A round of an agent that follows nobody."""
        run_duties(self.agent)
        return self._run("upkeep", [lambda: run_duties(self.agent)] * (_TURNS // 5))


def _arrival(event: Event) -> Arrival:
    return Arrival(event.id, event.pubkey, event.kind)


def _metrics_in(written: str) -> set[str]:
    """The names of the metrics in lines of CloudWatch's embedded format."""
    return {
        metric["Name"]
        for line in written.splitlines()
        if line.startswith('{"_aws"')
        for group in orjson.loads(line)["_aws"]["CloudWatchMetrics"]
        for metric in group["Metrics"]
    }


def _size(frame: str | bytes | None) -> int:
    return len(frame.encode() if isinstance(frame, str) else frame or b"")


def _messages(size: int) -> int:
    return max(1, -(-size // _FRAME))


def _each(amount: int, number: int) -> int:
    return -(-amount // number)


def _per_million(amount: int, number: int) -> int:
    return -(-amount * MILLION // number)


def _log_access(usage: Usage, lines: int = 1) -> None:
    """Add the access log of a million requests."""
    for unit in (Unit.LOGGED_BYTES, Unit.KEPT_LOG_BYTES):
        usage[unit] += MILLION * lines * ACCESS_LOG_BYTES
