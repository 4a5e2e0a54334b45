"""`farthing backup` while events are being paid for, and `farthing restore`."""

import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from farthing.ilp.packet import Fulfill
from tests.e2e.authors import Author
from tests.e2e.paying import PER_BYTE, command, free_port, pay, payment_for
from tests.e2e.relay_process import RelayProcess
from tests.e2e.stores import exported_ids, farthing


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[RelayProcess]:
    relay = RelayProcess(tmp_path / "data", port=free_port(), price_per_byte=PER_BYTE).start()
    yield relay
    relay.stop()


class Storm:
    """Writers that pay for events until they are told to stop."""

    def __init__(self, relay: RelayProcess, writers: int = 4) -> None:
        self._relay = relay
        self._stopping = threading.Event()
        self.stored: list[str] = []
        self._threads = [threading.Thread(target=self._write) for _ in range(writers)]
        for thread in self._threads:
            thread.start()

    def _write(self) -> None:
        author = Author()
        while not self._stopping.is_set():
            event = author.event("storm")
            if isinstance(pay(self._relay, payment_for(self._relay, author, event)), Fulfill):
                self.stored.append(event["id"])

    def wait_for(self, number: int) -> None:
        while len(self.stored) < number:
            self._threads[0].join(0.01)

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()


def test_what_was_acknowledged_before_a_backup_is_in_it(
    relay: RelayProcess, tmp_path: Path
) -> None:
    storm = Storm(relay)
    try:
        storm.wait_for(20)
        before = set(storm.stored)
        done = command(relay, "backup", str(tmp_path / "backup"))
        assert done.returncode == 0, done.stderr
        storm.wait_for(len(storm.stored) + 10)
    finally:
        storm.stop()

    restored = farthing(tmp_path / "again", "restore", str(tmp_path / "backup"))

    assert restored.returncode == 0, restored.stdout + restored.stderr
    assert "0 differences" in restored.stdout
    assert before <= exported_ids(tmp_path / "again", {})
    assert (tmp_path / "again/secret-key").read_text() == (relay.data / "secret-key").read_text()
    # The search index changes while it is copied, and is made anew.
    assert not {"lock", "search.db"} & {path.name for path in (tmp_path / "backup").iterdir()}
    for path in (tmp_path / "backup", tmp_path / "again"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
        assert stat.S_IMODE((path / "farthing.db").stat().st_mode) == 0o600


def test_a_server_starts_on_what_was_restored(relay: RelayProcess, tmp_path: Path) -> None:
    author = Author()
    event = author.event("kept")
    assert isinstance(pay(relay, payment_for(relay, author, event)), Fulfill)
    command(relay, "backup", str(tmp_path / "backup"))
    relay.stop()
    farthing(tmp_path / "again", "restore", str(tmp_path / "backup"))

    again = RelayProcess(tmp_path / "again", port=free_port(), price_per_byte=PER_BYTE).start()
    try:
        assert again.pubkey == relay.pubkey
        assert event["id"] in exported_ids(tmp_path / "again", {})
    finally:
        assert again.stop() == 0


def test_backup_and_restore_overwrite_nothing(relay: RelayProcess, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine").write_text("mine")

    assert "is not empty" in command(relay, "backup", str(full)).stderr
    assert "is not a backup" in farthing(tmp_path / "new", "restore", str(full)).stderr
    command(relay, "backup", str(tmp_path / "backup"))
    assert "is not empty" in farthing(full, "restore", str(tmp_path / "backup")).stderr
    assert [path.name for path in full.iterdir()] == ["mine"]


def test_a_backup_is_not_put_into_the_data_folder(relay: RelayProcess) -> None:
    done = command(relay, "backup", str(relay.data / "backup"))

    assert done.returncode == 1
    assert "is in the data folder" in done.stderr
    assert not (relay.data / "backup").exists()


def test_what_is_no_database_is_not_restored(tmp_path: Path) -> None:
    (tmp_path / "backup").mkdir()
    (tmp_path / "backup/farthing.db").write_bytes(b"no database" * 1000)

    done = farthing(tmp_path / "new", "restore", str(tmp_path / "backup"))

    assert done.returncode == 1
    assert "farthing.db cannot be read: file is not a database" in done.stderr
    assert not (tmp_path / "new/farthing.db").exists()
