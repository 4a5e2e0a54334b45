"""ILP over HTTP: who sends, what is a packet, both modes, and each Request-Id answered once."""

import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from farthing.connector import steps as connector
from farthing.connector.requests import OCTETS, Answer, receive_packet
from farthing.context import Agent
from farthing.ilp.packet import DATA_MAX, Fulfill, Reject, decode_reply, encode
from farthing.ports.http import HttpError
from farthing.ports.outbound import OutboundFailed, Response
from farthing.store.ledger import Peer, hash_token
from farthing.store.sqlite import SqliteEngine
from tests.ilp.paying import PAYER, TOKEN, code_of, dump, note, packet, paid_agent, posted
from tests.relay.world import Clock
from tests.store.faulty import Fault, FaultyEngine, nth

ENDPOINT = "https://payer.example/ilp"
CALLBACK = "https://payer.example/ilp/replies"


class RecordingOutbound:
    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, str], bytes]] = []
        self.fails = False

    def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        if self.fails:
            raise OutboundFailed("nobody there")
        assert timeout > 0
        self.sent.append((url, dict(headers), body))
        return Response(202, b"")

    def call_back(self, url: str, headers: Mapping[str, str], body: bytes, seconds: float) -> None:
        with suppress(OutboundFailed):
            self.post(url, headers, body, seconds)


@pytest.fixture
def outbound() -> RecordingOutbound:
    return RecordingOutbound()


@pytest.fixture
def agent(sqlite: SqliteEngine, clock: Clock, outbound: RecordingOutbound) -> Agent:
    payer = Peer("payer", hash_token(TOKEN), endpoint=ENDPOINT)
    return replace(paid_agent(sqlite, clock, payer), outbound=outbound)


def post(agent: Agent, body: bytes, **headers: str) -> Answer:
    """Headers by their names with underscores; None leaves one out."""
    given = {"content_type": OCTETS, "authorization": f"Bearer {TOKEN}", **headers}
    named = {name.replace("_", "-"): value for name, value in given.items() if value is not None}
    return receive_packet(agent, named, body)


def refusal(agent: Agent, body: bytes = b"", **headers: Any) -> int:
    before = dump(agent.engine)
    with pytest.raises(HttpError) as refused:
        post(agent, body, **headers)
    assert dump(agent.engine) == before
    return refused.value.status


def packet_of(agent: Agent, content: str = "hello") -> bytes:
    return encode(packet(agent, note(content)))


# In the response


def test_the_reply_is_the_response(agent: Agent, outbound: RecordingOutbound) -> None:
    answer = post(agent, packet_of(agent))
    assert answer.status == 200
    assert isinstance(decode_reply(answer.body), Fulfill)
    assert outbound.sent == []


def test_a_reject_is_a_good_response(agent: Agent) -> None:
    answer = post(agent, encode(packet(agent, note(), amount=1)))
    assert (answer.status, code_of(decode_reply(answer.body))) == (200, "F04")
    assert code_of(decode_reply(post(agent, b"no packet").body)) == "F01"
    assert code_of(decode_reply(post(agent, b"").body)) == "F01"


@pytest.mark.parametrize(
    "media_type",
    [OCTETS, "Application/Octet-Stream", f"{OCTETS}; charset=binary", f" {OCTETS} ;x=y"],
)
def test_media_types_that_are_octets(agent: Agent, media_type: str) -> None:
    assert post(agent, packet_of(agent), content_type=media_type).status == 200


@pytest.mark.parametrize("media_type", [OCTETS, "application/ilp+octet-stream"])
def test_the_answer_has_the_media_type_of_the_request(
    agent: Agent, outbound: RecordingOutbound, media_type: str
) -> None:
    assert post(agent, packet_of(agent), content_type=media_type).media_type == media_type
    named = {"content_type": media_type.upper(), "request_id": "r-2", "callback_url": CALLBACK}
    assert post(agent, packet_of(agent), **named).status == 202
    assert outbound.sent[-1][1]["Content-Type"] == media_type


@pytest.mark.parametrize(
    "media_type", [None, "", "application/json", "text/plain", f"{OCTETS}x", f"x;{OCTETS}"]
)
def test_media_types_that_are_not(agent: Agent, media_type: str) -> None:
    assert refusal(agent, packet_of(agent), content_type=media_type) == 400


def test_bodies_that_no_packet_has(agent: Agent) -> None:
    assert refusal(agent, bytes(34 * 1024 + 1)) == 413
    assert code_of(decode_reply(post(agent, bytes(34 * 1024)).body)) == "F01"


def test_the_largest_packet_there_is_passes(agent: Agent) -> None:
    destination = "g." + "x" * 1021
    largest = packet(agent, note(), data=bytes(DATA_MAX), destination=destination)
    assert code_of(decode_reply(post(agent, encode(largest)).body)) == "F02"


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        f"Basic {TOKEN}",
        TOKEN,
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN.upper()}",
        f"Bearer {hash_token(TOKEN)}",
        "Bearer a.b.c",
        "Bearer ..",
        "Bearer \udcff\udcfe",
        "Bearer " + "x" * 100_000,
    ],
)
def test_an_unknown_token_gets_401(agent: Agent, authorization: str) -> None:
    assert refusal(agent, packet_of(agent), authorization=authorization) == 401


@pytest.mark.parametrize("authorization", [f"bearer {TOKEN}", f"BEARER   {TOKEN} "])
def test_the_scheme_in_any_case(agent: Agent, authorization: str) -> None:
    assert post(agent, packet_of(agent), authorization=authorization).status == 200


def test_a_removed_peer_is_nobody(agent: Agent) -> None:
    agent.ledger.remove_peer(PAYER.id)
    assert refusal(agent, packet_of(agent)) == 401


@pytest.mark.parametrize("body", [b"", b"no packet", None])
def test_packets_that_come_too_fast(sqlite: SqliteEngine, clock: Clock, body: bytes | None) -> None:
    """Whatever is in them: what is rejected at once costs time too, and a Request-Id is kept."""
    agent = paid_agent(sqlite, clock, packets_per_minute=3)
    sent = packet_of(agent) if body is None else body
    for number in range(3):
        assert code_of(decode_reply(post(agent, sent, request_id=f"{number}").body)) != "T05"
    before = dump(sqlite)
    answer = post(agent, sent, request_id="one more")
    assert code_of(decode_reply(answer.body)) == "T05"
    assert dump(sqlite) == before
    clock.now += 60
    answer = post(agent, packet_of(agent), request_id="one more")
    assert code_of(decode_reply(answer.body)) != "T05"


def test_a_process_that_is_alone_counts_packets_without_the_store(
    sqlite: SqliteEngine, clock: Clock
) -> None:
    agent = replace(paid_agent(sqlite, clock, packets_per_minute=2), alone=True)
    replies = [post(agent, packet_of(agent, text)).body for text in "abc"]
    codes = [code_of(decode_reply(reply)) for reply in replies]
    assert codes == ["fulfilled", "fulfilled", "T05"]
    assert agent.sessions.count_packet(PAYER.id, agent.now) == 1  # nothing was counted there


# By a request of our own

ASYNCHRONOUS = {"request_id": "r-1", "callback_url": CALLBACK}


@pytest.mark.parametrize(
    "headers",
    [
        ASYNCHRONOUS,
        {**ASYNCHRONOUS, "prefer": "respond-async"},
        {**ASYNCHRONOUS, "prefer": "wait=5, Respond-Async"},
    ],
)
def test_the_reply_goes_to_the_callback(
    agent: Agent, outbound: RecordingOutbound, headers: dict[str, str]
) -> None:
    assert post(agent, packet_of(agent), **headers) == Answer(202)
    ((url, sent, body),) = outbound.sent
    assert url == CALLBACK
    assert sent == {"Content-Type": OCTETS, "Request-Id": "r-1"}
    assert isinstance(decode_reply(body), Fulfill)


@pytest.mark.parametrize(
    "headers",
    [
        {"prefer": "respond-async"},
        {"prefer": "respond-async", "request_id": "r"},
        {"prefer": "respond-async", "callback_url": CALLBACK},
        {"request_id": "", "callback_url": CALLBACK},
        {"request_id": "r", "callback_url": ""},
        {"request_id": "x" * 257},
        {"request_id": "a\r\nb"},
        {"request_id": "\udcff"},
        {"request_id": "ü"},
    ],
)
def test_an_incomplete_asynchronous_request_gets_400(
    agent: Agent, outbound: RecordingOutbound, headers: dict[str, str]
) -> None:
    assert refusal(agent, packet_of(agent), **headers) == 400
    assert outbound.sent == []


def test_a_callback_that_is_not_taken_can_be_asked_for_again(
    agent: Agent, outbound: RecordingOutbound
) -> None:
    body = packet_of(agent)
    outbound.fails = True
    assert post(agent, body, **ASYNCHRONOUS).status == 202
    after = dump(agent.engine)
    outbound.fails = False
    assert post(agent, body, **ASYNCHRONOUS).status == 202
    ((_, _, reply),) = outbound.sent
    assert isinstance(decode_reply(reply), Fulfill)
    assert dump(agent.engine) == after


# Once


def test_a_request_id_answers_the_same_and_pays_once(agent: Agent) -> None:
    body = packet_of(agent)
    first = post(agent, body, request_id="r")
    after = dump(agent.engine)
    assert post(agent, body, request_id="r") == first
    assert dump(agent.engine) == after


def test_a_reject_is_kept_as_well(agent: Agent) -> None:
    """Even where the packet would pass by now: the same id has the same answer."""
    body = packet_of(agent)
    assert code_of(decode_reply(post(agent, body[:-1], request_id="r").body)) == "F01"
    assert code_of(decode_reply(post(agent, body, request_id="r").body)) == "F01"
    assert posted(agent) == 0
    assert post(agent, body, request_id="r2").status == 200
    assert posted(agent) > 0


def test_another_packet_under_an_answered_id_moves_nothing(agent: Agent) -> None:
    first = post(agent, packet_of(agent, "one"), request_id="r")
    after = dump(agent.engine)
    assert post(agent, packet_of(agent, "two"), request_id="r") == first
    assert dump(agent.engine) == after


def test_a_request_id_may_be_used_again_after_a_day(agent: Agent, clock: Clock) -> None:
    """The old claim may still stand there, past its time to live: nothing has purged it."""
    first = post(agent, packet_of(agent, "one"), request_id="r")
    clock.now += 24 * 3600 - 1
    assert post(agent, packet_of(agent, "two"), request_id="r") == first
    clock.now += 1
    body = packet_of(agent, "two")
    second = post(agent, body, request_id="r")
    assert isinstance(decode_reply(second.body), Fulfill) and second != first
    assert len(list(agent.ledger.receipts(PAYER.id))) == 2
    assert post(agent, body, request_id="r") == second


def test_an_old_request_id_is_claimed_once_by_many(agent: Agent, clock: Clock) -> None:
    assert agent.ledger.claim_request("payer", "r", "old", agent.now) is None
    clock.now += 24 * 3600
    claims = [agent.ledger.claim_request("payer", "r", f"{n}", agent.now) for n in range(3)]
    assert [claim and claim["packet"] for claim in claims] == [None, "0", "0"]


def test_another_packet_under_an_id_at_work_is_refused(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def slow(*_: Any) -> None:
        """A step behind the claim."""
        if not seen:
            seen.append(None)
            seen.append(decode_reply(post(agent, packet_of(agent, "two"), request_id="r").body))

    monkeypatch.setattr(connector, "FOR_US", (slow, *connector.FOR_US))
    answer = post(agent, packet_of(agent, "one"), request_id="r")
    assert isinstance(decode_reply(answer.body), Fulfill)
    assert isinstance(seen[1], Reject)
    assert seen[1].code == "F00"
    assert len(list(agent.ledger.receipts(PAYER.id))) == 1


def test_request_ids_are_each_peers_own(agent: Agent) -> None:
    token = "another-token-of-forty-three-characters-9876543210"
    agent.ledger.add_peer(Peer("other", hash_token(token)))
    post(agent, packet_of(agent, "one"), request_id="r")
    answer = post(agent, packet_of(agent, "two"), request_id="r", authorization=f"Bearer {token}")
    assert isinstance(decode_reply(answer.body), Fulfill)
    assert len(list(agent.ledger.receipts("other"))) == 1


def test_the_same_request_many_times_at_once(agent: Agent) -> None:
    body = packet_of(agent)
    answers: list[Answer] = []
    start = threading.Barrier(16)

    def ask() -> None:
        start.wait()
        answers.append(post(agent, body, request_id="r"))

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 16
    assert len(set(answers)) == 1
    assert isinstance(decode_reply(answers[0].body), Fulfill)
    (receipt,) = agent.ledger.receipts(PAYER.id)
    assert posted(agent) == receipt.amount


@pytest.mark.parametrize(("write", "code"), [(0, "T00"), (1, "fulfilled")])
def test_a_store_that_fails_at_claim_or_answer(
    agent: Agent, write: int, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    body = packet_of(agent)
    engine = FaultyEngine(agent.engine)
    faulty = replace(agent, engine=engine)
    # Writes: the claim, the rate counter, and the answer; the payment is a transaction.
    engine.plan = nth(2 * write, ["write"], Fault())
    assert code_of(decode_reply(post(faulty, body, request_id="r").body)) == code
    assert ("could not be stored" if write else "a packet could not be handled") in caplog.text
    again = decode_reply(post(agent, body, request_id="r").body)
    assert isinstance(again, Fulfill)
    assert len(list(agent.ledger.receipts(PAYER.id))) == 1
