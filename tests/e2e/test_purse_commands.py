"""`farthing purse` and `farthing post --purse` beside a running relay."""

from collections.abc import Iterator

import pytest

from farthing.nostr.nip19 import Npub, encode
from tests.e2e.authors import Author
from tests.e2e.paying import command, free_port, table_of
from tests.e2e.purses import PURSES, assert_audit, left
from tests.e2e.relay_process import RelayProcess


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayProcess]:
    data = tmp_path_factory.mktemp("purse-commands") / "data"
    relay = RelayProcess(data, port=free_port(), max_packet=6000, **PURSES).start()
    yield relay
    assert_audit(relay)
    assert relay.stop() == 0
    relay.check_log()


def purse(relay: RelayProcess, *arguments: str) -> tuple[int, dict[str, str]]:
    done = command(relay, "purse", *arguments)
    return done.returncode, table_of(done.stdout + done.stderr)


def test_grant_shows_what_the_purse_holds(relay: RelayProcess) -> None:
    author = Author()

    status, shown = purse(relay, "grant", encode(Npub(author.pubkey)), "1500")

    assert status == 0
    assert shown["left"].startswith("1500 USD/1e9")
    assert (shown["granted"], shown["filled"]) == ("1500", "0")
    assert left(relay, author) == 1500


def test_fill_pays_in_as_many_packets_as_it_takes(relay: RelayProcess) -> None:
    author = Author()

    status, shown = purse(relay, "fill", author.pubkey, "15000")

    assert (status, shown["paid"]) == (0, "15000 in 3 packets")
    assert left(relay, author) == 15000


def test_a_frozen_purse_is_not_filled(relay: RelayProcess) -> None:
    author = Author()
    assert purse(relay, "freeze", author.pubkey)[1]["frozen"] == "yes"

    status, shown = purse(relay, "fill", author.pubkey, "100")
    assert status == 1
    assert shown["rejected"].startswith("F99 ")
    assert purse(relay, "grant", author.pubkey, "100")[0] == 1

    assert "frozen" not in purse(relay, "freeze", author.pubkey, "--off")[1]
    assert purse(relay, "fill", author.pubkey, "100")[0] == 0


@pytest.mark.parametrize("arguments", [("show", "f" * 64), ("grant", "1" * 64, "0")])
def test_what_is_no_purse_is_refused(relay: RelayProcess, arguments: tuple[str, ...]) -> None:
    assert purse(relay, *arguments)[0] == 1


def test_post_writes_from_the_purse_that_was_filled(relay: RelayProcess) -> None:
    refused = command(relay, "post", "hello", "--purse")
    assert refused.returncode == 1
    reason = table_of(refused.stdout)["refused"]
    assert reason.startswith("restricted: this costs ")
    key = reason.rpartition("/")[2]
    assert purse(relay, "fill", key, "5000")[0] == 0

    done = command(relay, "post", "hello again", "--purse")

    assert done.returncode == 0, done.stdout + done.stderr
    shown = command(relay, "purse", "show", key).stdout
    assert "drawn    event" in shown
    listed = command(relay, "purse", "list").stdout.splitlines()
    numbers = [int(cell) for cell in listed[-1].split()[1:]]
    assert numbers[0] == numbers[1] + numbers[2] - numbers[3]
    assert len(listed) >= 3
