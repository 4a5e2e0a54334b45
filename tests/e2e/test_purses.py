"""Purses on a running relay: a real client, a race, and kill -9 in the middle of payments."""

import asyncio
import json
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import aiohttp
import orjson
import pytest
from nostr_sdk import (
    ClientBuilder,
    EventBuilder,
    Keys,
    Kind,
    RelayUrl,
    SignerAuthenticator,
    uniffi_set_event_loop,
)

from tests.e2e.authors import Author
from tests.e2e.client import Background, RawClient
from tests.e2e.paying import free_port, http
from tests.e2e.purses import (
    PURSES,
    assert_audit,
    credit,
    left,
    nostr_authorization,
    price,
    purse_of,
)
from tests.e2e.relay_process import RelayProcess

PATIENCE = timedelta(seconds=10)
ENOUGH = 10**9


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Any:
    data = tmp_path_factory.mktemp("purses") / "data"
    relay = RelayProcess(data, port=free_port(), **PURSES).start()
    yield relay
    assert_audit(relay)
    assert relay.stop() == 0
    relay.check_log()


def test_rust_nostr_logs_in_when_asked_and_publishes_until_its_purse_is_empty(
    background: Background, relay: RelayProcess
) -> None:
    async def story() -> None:
        uniffi_set_event_loop(asyncio.get_running_loop())
        keys = Keys.generate()
        author = Author(keys.secret_key().to_hex())
        client = ClientBuilder().authenticator(SignerAuthenticator(keys)).build()
        url = RelayUrl.parse(relay.url)
        await client.add_relay(url)
        await client.connect(PATIENCE)
        try:
            first = EventBuilder(Kind(1), "from a purse").finalize(keys)
            costs = price(json.loads(first.as_json()))
            refused = await client.send_event(first)
            reason = next(iter(refused.failed.values()))
            assert f"costs {costs} " in reason
            assert f"{relay.http}/purse/" in reason
            credit(relay, author.pubkey, costs)
            accepted = await client.send_event(first)
            assert not accepted.failed
            assert left(relay, author) == 0
            again = await client.send_event(first)  # stored already: free
            assert not again.failed
            second = EventBuilder(Kind(1), "from an empty one").finalize(keys)
            assert (await client.send_event(second)).failed
        finally:
            await client.shutdown()

    background.run(story(), seconds=60)


def test_an_event_by_http_is_paid_from_the_purse_of_who_signs(relay: RelayProcess) -> None:
    author = Author()
    credit(relay, author.pubkey, ENOUGH)
    body, url = orjson.dumps(author.event("by HTTP")), f"{relay.http}/v1/events"
    event = orjson.loads(body)

    assert http("POST", url, body).status == 402
    old = nostr_authorization(author.secret, "POST", url, b"another")
    assert http("POST", url, body, Authorization=old).status == 401
    signed = nostr_authorization(author.secret, "POST", url, body)
    answer = http("POST", url, body, Authorization=signed)

    assert (answer.status, answer.json()["stored"]) == (200, True)
    assert left(relay, author) == ENOUGH - price(event)
    shown = purse_of(relay, author)
    assert shown["drawn"] == str(price(event))
    assert [each["kind"] for each in shown["movements"]] == ["drawn", "filled"]


def test_the_page_and_the_pointer_are_served(relay: RelayProcess) -> None:
    page = http("GET", f"{relay.http}/purse")
    assert page.headers["Content-Type"].startswith("text/html")
    author = Author()
    spsp = http("GET", f"{relay.http}/purse/{author.pubkey}", Accept="application/spsp4+json")
    assert spsp.headers["Cache-Control"] == "no-cache"
    assert author.pubkey in spsp.json()["destination_account"]
    assert http("GET", f"{relay.http}/.well-known/pay").status == 200
    assert http("GET", f"{relay.http}/purse/nobody").status == 404


def test_of_64_writers_on_16_connections_with_enough_for_one_one_writes(
    background: Background, relay: RelayProcess
) -> None:
    author = Author()
    notes = [author.event(f"{number:02d}") for number in range(64)]
    credit(relay, author.pubkey, price(notes[0]) + 10)

    answers = background.run(_race(relay, author, notes), seconds=60)

    accepted = [event_id for event_id, was in answers.items() if was]
    assert len(answers) == 64
    assert len(accepted) == 1
    assert left(relay, author) == 10


async def _race(
    relay: RelayProcess, author: Author, notes: list[dict[str, Any]]
) -> dict[str, bool]:
    answers: dict[str, bool] = {}
    barrier = asyncio.Barrier(16)

    async def write(number: int) -> None:
        async with aiohttp.ClientSession() as session, session.ws_connect(relay.url) as socket:
            await log_in(socket, author, relay.url)
            await barrier.wait()
            mine = notes[number::16]
            await asyncio.gather(*(socket.send_str(json.dumps(["EVENT", note])) for note in mine))
            for _ in mine:
                frame = await socket.receive_json()
                answers[frame[1]] = frame[2]

    await asyncio.gather(*(write(number) for number in range(16)))
    return answers


async def log_in(socket: Any, author: Author, url: str) -> None:
    await socket.send_str('["CLOSE","nothing"]')
    challenge = (await socket.receive_json())[1]
    login = author.auth_event(challenge=challenge, relay=url)
    await socket.send_str(json.dumps(["AUTH", login]))
    assert (await socket.receive_json())[2] is True


class Storm:
    """Logged-in writers that pipeline notes from one purse until the relay is gone."""

    def __init__(self, relay: RelayProcess, author: Author, wanted: int) -> None:
        self.relay = relay
        self.author = author
        self.sent: dict[str, dict[str, Any]] = {}
        self.accepted: set[str] = set()
        self._wanted = wanted
        self._enough = asyncio.Event()

    async def blow(self) -> None:
        writers = [asyncio.create_task(self._write()) for _ in range(4)]
        await self._enough.wait()
        self.relay.process.kill()
        await asyncio.gather(*writers)

    async def _write(self) -> None:
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(self.relay.url, autoclose=False) as socket,
        ):
            await log_in(socket, self.author, self.relay.url)
            try:
                for _ in range(40):
                    await self._send(socket)
                async for message in socket:
                    frame = json.loads(message.data)
                    if frame[0] == "OK" and frame[2]:
                        self.accepted.add(frame[1])
                    if len(self.accepted) >= self._wanted:
                        self._enough.set()
                    await self._send(socket)
            except (ConnectionError, aiohttp.ClientError):
                pass  # struck

    async def _send(self, socket: Any) -> None:
        note = self.author.event()
        self.sent[note["id"]] = note
        await socket.send_str(json.dumps(["EVENT", note]))


# More rounds by FARTHING_STORM_ROUNDS=100 pytest tests/e2e/test_purses.py -k storm.
ROUNDS = int(os.environ.get("FARTHING_STORM_ROUNDS", "2"))


def test_kill_9_in_a_storm_of_payments_loses_and_draws_nothing_twice(
    start_relay: Callable[..., RelayProcess],
    connect: Callable[..., RawClient],
    background: Background,
) -> None:
    settings = {**PURSES, "port": free_port()}
    author, drawn = Author(), 0
    relay = start_relay("storm", **settings)
    credit(relay, author.pubkey, ENOUGH)
    for number in range(ROUNDS):
        storm = Storm(relay, author, 1 + 150 * number)
        background.run(storm.blow(), seconds=60)
        relay.wait()
        relay = start_relay("storm", **settings)
        client = connect(relay)
        stored: set[str] = set()
        ids = list(storm.sent)
        for start in range(0, len(ids), 500):
            stored.update(client.ids({"ids": ids[start : start + 500], "limit": 5000}))
        assert storm.accepted <= stored
        drawn += sum(price(storm.sent[each]) for each in stored)
        assert left(relay, author) == ENOUGH - drawn
        # Sent again, as by a client that got no OK: what is stored costs nothing.
        client.authenticate(author)
        for event_id in list(stored)[:20]:
            assert client.publish(storm.sent[event_id])[1].startswith("duplicate: ")
        assert left(relay, author) == ENOUGH - drawn
    assert_audit(relay)


def test_old_events_of_others_are_no_way_into_their_purses(
    relay: RelayProcess, connect: Callable[..., RawClient]
) -> None:
    author, thief = Author(), Author()
    credit(relay, author.pubkey, ENOUGH)
    writer, replayer = connect(relay), connect(relay)
    assert writer.authenticate(author)[0]
    note, elsewhere = author.event(), author.event("published at another relay")
    assert writer.publish(note) == (True, "")
    after = left(relay, author)

    assert replayer.publish(note)[1].startswith("duplicate: ")
    assert replayer.publish(elsewhere)[1].startswith("auth-required: ")
    assert replayer.authenticate(thief)[0]
    assert replayer.publish(elsewhere)[1].startswith("restricted: ")

    assert left(relay, author) == after
    url = f"{relay.http}/v1/purses/{author.pubkey}"
    theirs = nostr_authorization(thief.secret, "GET", url)
    assert http("GET", url, Authorization=theirs).status == 403
    assert http("GET", url).status == 401
