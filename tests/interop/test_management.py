"""NIP-86 by an unmodified client library: applesauce-relay."""

from collections.abc import Iterator
from secrets import token_hex
from typing import Any

import pytest

from tests.e2e.relay_process import RelayProcess
from tests.interop.node import needs, run

pytestmark = needs("applesauce-relay", "applesauce-signers", "ws")
STRANGER = "ab" * 32


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayProcess]:
    relay = RelayProcess(tmp_path_factory.mktemp("relay") / "data", price_per_byte=0).start()
    yield relay
    assert relay.stop() == 0


def manage(relay: RelayProcess, secret: str, *calls: list[str]) -> Any:
    request = {"secretKey": secret, "relay": relay.url, "calls": calls}
    return run("manage_applesauce.mjs", request, seconds=60)


def test_the_owner_bans_and_lists(relay: RelayProcess) -> None:
    secret = (relay.data / "secret-key").read_text().strip()

    methods, banned, listed = manage(
        relay, secret, ["supportedMethods"], ["banPubkey", STRANGER, "spam"], ["listBannedPubkeys"]
    )

    assert "banpubkey" in methods
    assert banned is True
    assert listed == [{"pubkey": STRANGER, "reason": "spam"}]


def test_only_the_owner_may_manage(relay: RelayProcess) -> None:
    (refused,) = manage(relay, token_hex(32), ["banPubkey", STRANGER])

    assert "403" in refused["error"] or "401" in refused["error"]
