"""What was acknowledged survives: a kill in the middle of a write storm, and a clean stop in it."""

import asyncio
import json
import random
import signal
import time
from collections.abc import Iterable
from typing import Any

import aiohttp
import pytest

from tests.e2e.authors import Author, newest_first
from tests.e2e.client import Background, RawClient
from tests.e2e.conftest import OPEN
from tests.e2e.relay_process import RelayProcess

WRITERS = 4
IN_FLIGHT = 60
NOW = int(time.time())

Event = dict[str, Any]


class Storm:
    """Connections that pipeline events until the relay is gone."""

    def __init__(self, url: str, acknowledgements_wanted: int) -> None:
        self.url = url
        self.sent: dict[str, Event] = {}
        self.acknowledged: dict[str, Event] = {}
        self._wanted = acknowledgements_wanted
        self._enough = asyncio.Event()
        self._random = random.Random(acknowledgements_wanted)

    async def blow(self, strike: signal.Signals, relay: RelayProcess) -> None:
        """Let all writers write, strike the relay once enough is acknowledged, and see it end."""
        writers = [asyncio.create_task(self._write(Author())) for _ in range(WRITERS)]
        await self._enough.wait()
        relay.send_signal(strike)
        await asyncio.gather(*writers)

    async def _write(self, author: Author) -> None:
        serial = 0
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(self.url, autoclose=False) as socket,
        ):
            try:
                for _ in range(IN_FLIGHT):
                    await self._send(socket, author, serial := serial + 1)
                async for message in socket:
                    frame = json.loads(message.data)
                    if frame[0] != "OK":
                        continue
                    assert frame[2], frame
                    self.acknowledged[frame[1]] = self.sent[frame[1]]
                    if len(self.acknowledged) >= self._wanted:
                        self._enough.set()
                    await self._send(socket, author, serial := serial + 1)
            except (ConnectionError, aiohttp.ClientError):
                pass  # struck

    async def _send(self, socket: Any, author: Author, serial: int) -> None:
        choice = self._random.choice
        tags = [["t", choice("abc")], ["r", f"{author.pubkey}{serial}"], ["k", "storm"]]
        event = author.event(
            kind=choice([1, 7, 1111]), created_at=NOW - choice(range(50)), tags=tags
        )
        self.sent[event["id"]] = event
        await socket.send_str(json.dumps(["EVENT", event]))


def chunks(values: Iterable[Any], size: int) -> Iterable[list[Any]]:
    values = list(values)
    return (values[start : start + size] for start in range(0, len(values), size))


def check_everything_is_found(client: RawClient, storm: Storm) -> None:
    """Each acknowledged event by each index; and whatever an index finds is what was asked for."""
    stored: dict[str, Event] = {}
    for ids in chunks(storm.sent, 500):
        for event in client.ask({"ids": ids, "limit": 5000}):
            assert event == storm.sent[event["id"]]
            stored[event["id"]] = event
    assert storm.acknowledged.keys() <= stored.keys()

    def expect(filter: dict[str, Any], wanted: Iterable[Event]) -> None:
        got = client.ids({**filter, "limit": 5000})
        assert got == newest_first(list(wanted)), filter

    events = list(stored.values())
    expect({"#k": ["storm"]}, events)
    for letter in "abc":
        expect({"#t": [letter]}, [event for event in events if event["tags"][0][1] == letter])
    for kind in (1, 7, 1111):
        expect({"kinds": [kind]}, [event for event in events if event["kind"] == kind])
    authors = {event["pubkey"] for event in storm.sent.values()}
    for author in authors:
        mine = [event for event in events if event["pubkey"] == author]
        expect({"authors": [author]}, mine)
        expect({"authors": [author], "kinds": [7]}, [e for e in mine if e["kind"] == 7])
    for some in chunks(events, 200):
        expect({"#r": [event["tags"][1][1] for event in some]}, some)
    everything = [event for event in client.ask({"limit": 5000}) if event["pubkey"] in authors]
    assert [event["id"] for event in everything] == newest_first(events)
    lost = [event for event in storm.sent.values() if event["id"] not in stored]
    for some in chunks(lost, 200):  # half written: nothing of it may show
        assert client.ids({"#r": [event["tags"][1][1] for event in some]}) == []


@pytest.fixture
def storm_and_restart(start_relay, background: Background, connect):
    def run(strike: signal.Signals, wanted: int, folder: str) -> int:
        relay = start_relay(folder, **OPEN)
        storm = Storm(relay.url, wanted)
        background.run(storm.blow(strike, relay), seconds=40)
        code = relay.wait()
        assert len(storm.acknowledged) >= wanted
        check_everything_is_found(connect(start_relay(folder, **OPEN)), storm)
        return code

    return run


@pytest.mark.parametrize("wanted", [1, 200, 700])
def test_kill_9_in_a_write_storm(storm_and_restart, wanted: int):
    assert storm_and_restart(signal.SIGKILL, wanted, "data") == -signal.SIGKILL


@pytest.mark.parametrize("strike", [signal.SIGTERM, signal.SIGINT])
def test_a_clean_stop_in_a_write_storm(storm_and_restart, strike: signal.Signals):
    assert storm_and_restart(strike, 300, "data") == 0


def test_replacing_and_deleting_survive_a_kill(start_relay, background: Background, connect):
    """Versions and deletions are several writes each: after a kill they are done or not begun."""
    relay = start_relay(**OPEN)
    client, author = connect(relay), Author()
    versions = [author.event(kind=30023, created_at=NOW + number, tags=[["d", "x"], ["t", "v"]])
                for number in range(150)]  # fmt: skip
    notes = [author.event(tags=[["t", "n"]]) for _ in range(60)]
    deletions = [author.event(kind=5, tags=[["e", note["id"]]]) for note in notes]
    client.store(*notes)
    frames = [json.dumps(["EVENT", event]) for pair in zip(versions, deletions, strict=False)
              for event in pair]  # fmt: skip
    client.send_text(*frames)
    client.wait_for("OK", versions[20]["id"])
    relay.kill()
    client.wait_for_close()
    fine = {frame[1] for frame in client.inbox if frame[0] == "OK" and frame[2]}

    again = connect(start_relay(**OPEN))
    mine = {"authors": [author.pubkey]}
    standing = again.ask({**mine, "kinds": [30023]})
    assert len(standing) == 1
    assert [event["id"] for event in again.ask({"#t": ["v"]})] == [standing[0]["id"]]
    newest = max(event["created_at"] for event in versions if event["id"] in fine)
    assert standing[0]["created_at"] >= newest
    left = set(again.ids({**mine, "kinds": [1]}))
    assert left == set(again.ids({"#t": ["n"]}))
    for note, deletion in zip(notes, deletions, strict=True):
        if deletion["id"] in fine:
            assert note["id"] not in left
            assert again.publish(note)[0] is False
    # Sent again, as a client would that got no OK, all comes to its end.
    for event in [*versions, *deletions]:
        again.publish(event)
    assert again.ids({**mine, "kinds": [30023]}) == [versions[-1]["id"]]
    assert again.ids({**mine, "kinds": [1]}) == []
