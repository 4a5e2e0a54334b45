"""Aether beside Nostr: ingest over the socket and units of a note, both in one run."""

import random
import tempfile
import time
from pathlib import Path

import orjson

from farthing.aether.events import Event, sign_event
from farthing.aether.messages import publish as publish_message
from farthing.relay.caller import Caller
from farthing.relay.receive import receive
from farthing.relay.verbs import VERBS
from tests.bench import ingest
from tests.bench.loading import Throughput
from tests.bench.notes import AUTHORS, author_secret, event_messages, signed_notes
from tests.bench.result import Row, at_least, at_most
from tests.bench.units import note_units
from tests.bench.worlds import Client, world

SHARE_OF_NOSTR = 0.9
_TEXT = "the quick brown fox jumps over the lazy dog and says so, note %d"
_ROUNDS = 2
_WARM_UP = 1000


def run(quick: bool) -> list[Row]:
    seconds = 3.0 if quick else 10.0
    number = _WARM_UP + int(seconds * 5000)
    nostr, aether = None, None
    for _ in range(_ROUNDS):  # by turns, so that a noisy machine troubles both alike
        nostr = _plus(nostr, _ingest(event_messages(signed_notes(number)), seconds / _ROUNDS))
        aether = _plus(aether, _ingest(_messages(number), seconds / _ROUNDS))
    assert nostr is not None and aether is not None
    note = f"CPU an event: {aether.server_microseconds:.0f} and {nostr.server_microseconds:.0f} µs"
    ours, theirs = _units(), note_units()
    return [
        Row("aether: ingest, against Nostr's", aether.rate, "ev/s", nostr.rate, "ev/s",
            at_least(SHARE_OF_NOSTR), note),
        Row("aether: note with two tags, write units", ours, "", target=at_most(theirs + 1),
            note=f"of Nostr {theirs}"),
    ]  # fmt: skip


def _plus(one: Throughput | None, other: Throughput) -> Throughput:
    return other if one is None else one + other


def _ingest(messages: list[bytes], seconds: float) -> Throughput:
    with tempfile.TemporaryDirectory() as folder:
        return ingest.farthing(Path(folder) / "data", messages, seconds)


def _messages(number: int) -> list[bytes]:
    return [publish_message(orjson.loads(event.to_json())).octets for event in _notes(number)]


def _notes(number: int) -> list[Event]:
    randomness, now = random.Random(), time.time_ns()
    return [
        sign_event(
            author_secret(each % AUTHORS), kind=1, content=_TEXT % each, created_at=now + each,
            tags=[["e", randomness.randbytes(32).hex()], ["p", randomness.randbytes(32).hex()]],
        )
        for each in range(number)
    ]  # fmt: skip


def _units() -> int:
    """Write units of the second of two notes."""
    with world(counting=True, price_per_byte=0) as agent:
        Client(agent, "client")
        cost = 0
        for number, event in enumerate(_notes(2)):
            agent.engine.reset()  # type: ignore[attr-defined]
            frame = publish_message(orjson.loads(event.to_json())).octets.decode()
            caller = Caller(agent, "client", agent.now_ms + number, "")
            answer = receive(agent, caller, frame, VERBS)
            assert orjson.loads(answer or "")["message"] == "accepted", answer
            cost = agent.engine.reset().write_units  # type: ignore[attr-defined]
    return cost
