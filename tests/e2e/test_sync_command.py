"""`farthing sync`: a data folder and another relay, both ways, paid where it must be."""

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.authors import Author
from tests.e2e.client import Background, RawClient
from tests.e2e.fake_relay import Frame, Send, fake_relay
from tests.e2e.relay_process import ROOT, RelayProcess, environment
from tests.e2e.stores import exported_ids, farthing, import_events

OPEN = {"price_per_byte": 0, "requests_per_second": 0}
NOTES = {"kinds": [1]}

Start = Callable[..., RelayProcess]


def sync(
    data: Path, url: str, *options: str, status: int = 0, **settings: object
) -> dict[str, str]:
    """What the command prints, by its first words."""
    done = farthing(data, "sync", url, "--quiet", *options, **settings)
    assert done.returncode == status, done.stderr
    rows: dict[str, str] = {"error": done.stderr}
    name = ""
    for line in done.stdout.splitlines():
        name = line[:12].strip() or name
        rows[name] = f"{rows[name]}\n{line[12:]}" if name in rows else line[12:]
    return rows


def notes(author: Author, number: int) -> list[dict[str, Any]]:
    return [author.event() for _ in range(number)]


def ids(events: list[dict[str, Any]]) -> set[str]:
    return {event["id"] for event in events}


class TestTwoServers:
    """Ours and theirs, both running; 300 events shared, more on either side."""

    @pytest.fixture
    def world(self, start_relay: Start, tmp_path: Path, author: Author) -> Any:
        shared, ours, theirs = notes(author, 300), notes(author, 120), notes(author, 270)
        import_events(tmp_path / "ours", shared + ours)
        import_events(tmp_path / "theirs", shared + theirs)
        relays = [RelayProcess(tmp_path / name, **OPEN).start() for name in ("ours", "theirs")]
        yield *relays, shared, ours, theirs
        for relay in relays:
            assert relay.stop() == 0
            relay.check_log()

    def test_sync_makes_both_sides_equal(
        self, world: Any, connect: Callable[..., RawClient]
    ) -> None:
        our_relay, their_relay, shared, ours, theirs = world
        watching = connect(our_relay)
        watching.request("new", {"kinds": [1], "limit": 0})

        printed = sync(our_relay.data, their_relay.url, "--filter", json.dumps(NOTES))

        everything = ids(shared + ours + theirs)
        assert exported_ids(our_relay.data, NOTES) == everything
        assert exported_ids(their_relay.data, NOTES) == everything
        asked = {**NOTES, "limit": 1000}
        assert set(connect(their_relay).ids(asked)) == everything
        assert {watching.wait_for("EVENT", "new")[2]["id"] for _ in theirs} == ids(theirs)
        assert printed["have"] == "120 that the relay lacks"
        assert printed["need"] == "270 that we lack"
        assert printed["downloaded"].startswith("270: 270 stored, 0 known")
        assert printed["uploaded"] == "120; 0 known there"
        assert re.fullmatch(r"\d+ rounds, \d+ bytes sent, \d+ received", printed["traffic"])

        again = sync(our_relay.data, their_relay.url, "--filter", json.dumps(NOTES))
        assert (again["have"], again["need"]) == ("0 that the relay lacks", "0 that we lack")

    def test_a_dry_run_changes_nothing_and_a_direction_only_one_side(self, world: Any) -> None:
        our_relay, their_relay, shared, ours, theirs = world
        to = (our_relay.data, their_relay.url, "--filter", json.dumps(NOTES))

        printed = sync(*to, "--dry-run")
        assert printed["have"] == "120 that the relay lacks"
        assert printed["need"] == "270 that we lack"
        assert exported_ids(our_relay.data, NOTES) == ids(shared + ours)

        sync(*to, "--dir", "down")
        assert exported_ids(our_relay.data, NOTES) == ids(shared + ours + theirs)
        assert exported_ids(their_relay.data, NOTES) == ids(shared + theirs)

        sync(*to, "--dir", "up")
        assert exported_ids(their_relay.data, NOTES) == ids(shared + ours + theirs)

    def test_a_filter_leaves_the_rest_alone(self, world: Any, author: Author) -> None:
        our_relay, their_relay, _, ours, _ = world
        event = sorted(ours, key=lambda each: each["id"])[0]

        sync(our_relay.data, their_relay.url, "--filter", json.dumps({"ids": [event["id"]]}))

        mine = exported_ids(their_relay.data, NOTES) & ids(ours)
        assert mine == {event["id"]}


class TestAPaidRelay:
    @pytest.fixture
    def paid(self, start_relay: Start) -> RelayProcess:
        return start_relay(price_per_byte=10)

    def upload(self, data: Path, relay: RelayProcess, *options: str) -> dict[str, str]:
        return sync(data, relay.url, "--dir", "up", "--filter", json.dumps(NOTES), *options)

    def test_without_a_token_says_what_it_wants(
        self, paid: RelayProcess, tmp_path: Path, author: Author
    ) -> None:
        import_events(tmp_path / "ours", notes(author, 3))

        printed = self.upload(tmp_path / "ours", paid)

        assert printed["uploaded"].startswith("0; 0 known there\n3 refused: restricted: ")
        assert exported_ids(paid.data, NOTES) == set()

    def test_with_one_is_paid_for_each_event(
        self, paid: RelayProcess, tmp_path: Path, author: Author
    ) -> None:
        owner = Author()
        events = [*notes(author, 12), *notes(owner, 3)]
        import_events(tmp_path / "ours", events)
        (tmp_path / "ours" / "secret-key").write_text(owner.secret)
        token = (paid.data / "peer-token").read_text().strip()

        printed = self.upload(tmp_path / "ours", paid, "--token", token)

        assert exported_ids(paid.data, NOTES) == ids(events)
        paid_for = re.fullmatch(r"15, 15 of them for (\d+); 0 known there", printed["uploaded"])
        assert paid_for is not None
        audit = farthing(paid.data, "audit").stdout
        assert "15 receipts" in audit
        assert f"{paid_for[1]} posted, 0 pending\n0 differences" in audit
        again = self.upload(tmp_path / "ours", paid, "--token", token)
        assert again["have"] == "0 that the relay lacks"

    def test_with_a_wrong_one_is_not(
        self, paid: RelayProcess, tmp_path: Path, author: Author
    ) -> None:
        import_events(tmp_path / "ours", notes(author, 2))

        printed = self.upload(tmp_path / "ours", paid, "--token", "x" * 43)

        assert "2 refused: the connector answered HTTP 401" in printed["uploaded"]
        assert exported_ids(paid.data, NOTES) == set()


def test_a_relay_that_slows_us_down_gets_everything(
    start_relay: Start, tmp_path: Path, author: Author
) -> None:
    events = notes(author, 230)
    import_events(tmp_path / "ours", events)
    relay = start_relay(price_per_byte=0, requests_per_second=100, request_burst=110)

    printed = sync(tmp_path / "ours", relay.url, "--dir", "up")

    assert printed["uploaded"] == "230; 0 known there"
    assert exported_ids(relay.data, NOTES) == ids(events)


def test_private_events_stay_where_they_are(
    start_relay: Start, tmp_path: Path, author: Author
) -> None:
    import_events(tmp_path / "ours", [author.event(kind=4), author.event(kind=1059)])
    relay = start_relay(**OPEN)

    printed = sync(tmp_path / "ours", relay.url, "--filter", '{"kinds":[1,4,1059]}')

    assert printed["ours"] == "0 events"
    assert exported_ids(relay.data, {"kinds": [4, 1059]}) == set()


class TestWhatGoesWrong:
    """The reason is on stderr, in one line, and the exit code is 1."""

    def refused(self, tmp_path: Path, url: str) -> str:
        (line,) = sync(tmp_path / "ours", url, status=1)["error"].splitlines()
        assert line.startswith("farthing: ")
        return line

    def test_a_relay_that_cannot_be_reached_is_named(self, tmp_path: Path) -> None:
        assert "cannot connect to ws://127.0.0.1:9" in self.refused(tmp_path, "ws://127.0.0.1:9")

    def test_text_that_is_no_url_is_refused(self, tmp_path: Path) -> None:
        error = sync(tmp_path / "ours", "nonsense", status=2)["error"]
        assert "expected a ws:// or wss:// URL, got 'nonsense'" in error.splitlines()[-1]

    def test_a_set_that_is_too_large_is_refused_with_advice(
        self, start_relay: Start, tmp_path: Path
    ) -> None:
        relay = start_relay(**OPEN, max_sync_events=0)

        assert "at most 0 events: give a narrower --filter" in self.refused(tmp_path, relay.url)

    @pytest.mark.parametrize(
        ("answer", "expected"),
        [
            (["NOTICE", "unknown verb"], "the relay says: unknown verb; does it support NIP-77?"),
            (["NEG-ERR", "farthing-sync", "blocked: no"], "the relay ends the sync: blocked: no"),
            (["NEG-ERR", "farthing-sync"], "the relay ends the sync"),
            (["CLOSED", "farthing-sync", "error: x"], "the relay ends the sync: error: x"),
            (["NEG-MSG", "farthing-sync", "zz"], "expected hexadecimal digits in"),
            (["NEG-MSG", "farthing-sync", "61ff"], "expected a negentropy message from the relay"),
            (["NEG-MSG", "farthing-sync", "60"], "responder speaks protocol version 0"),
            (None, "the relay has closed the connection"),
        ],
    )
    def test_a_wrong_answer_of_the_relay_is_told(
        self, background: Background, tmp_path: Path, answer: Frame | None, expected: str
    ) -> None:
        async def script(frame: Frame, send: Send) -> bool:
            if answer is None:
                return True
            await send(*answer)
            return False

        with fake_relay(background, script) as url:
            assert expected in self.refused(tmp_path, url)

    def test_events_that_are_not_what_was_asked_for(
        self, background: Background, tmp_path: Path, author: Author
    ) -> None:
        good, forged, unasked, withheld = notes(author, 4)
        forged["content"] += "!"
        wanted = [good, forged, withheld]

        async def script(frame: Frame, send: Send) -> None:
            if frame[0] == "NEG-OPEN":
                listed = "".join(event["id"] for event in wanted)
                await send("NEG-MSG", "farthing-sync", f"61000002{len(wanted):02x}{listed}")
            elif frame[0] == "REQ":
                for event in (unasked, good, good, forged):
                    await send("EVENT", frame[1], event)
                await send("EOSE", frame[1])

        with fake_relay(background, script) as url:
            printed = sync(tmp_path / "ours", url)

        assert exported_ids(tmp_path / "ours", NOTES) == {good["id"]}
        assert printed["downloaded"].startswith("2: 1 stored, 0 known")
        assert "1 refused: not sent" in printed["downloaded"]
        assert "1 invalid" in printed["downloaded"]

    def test_an_interruption_keeps_what_is_stored(
        self, background: Background, tmp_path: Path, author: Author
    ) -> None:
        events = notes(author, 300)
        asked = threading.Event()

        async def script(frame: Frame, send: Send) -> None:
            if frame[0] == "NEG-OPEN":
                listed = "".join(event["id"] for event in events)
                await send("NEG-MSG", "farthing-sync", f"61000002822c{listed}")
            elif frame[0] == "REQ":
                first = [event for event in events if event["id"] in frame[2]["ids"]]
                if len(first) < 250:  # the second batch: never answered
                    asked.set()
                    return
                for event in first:
                    await send("EVENT", frame[1], event)
                await send("EOSE", frame[1])

        with fake_relay(background, script) as url:
            command = subprocess.Popen(
                [sys.executable, "-m", "infra.local", "sync", url, "--quiet"],
                cwd=ROOT, env=environment(tmp_path / "ours", {}), text=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
            assert asked.wait(30)
            command.send_signal(signal.SIGINT)
            printed, error = command.communicate(timeout=30)

        assert command.returncode == 130
        assert "250 stored" in printed
        assert "Traceback" not in error
        assert len(exported_ids(tmp_path / "ours", NOTES)) == 250
