"""A real Chromium, driven by Playwright, against a running server. `make test-browser` installs
what the lock leaves out; where it is missing, these tests are skipped."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from farthing.nostr.events import public_key_of, sign_event
from tests.e2e.paying import PER_BYTE, free_port
from tests.e2e.relay_process import ROOT, RelayProcess

sync_api = pytest.importorskip("playwright.sync_api", reason="make test-browser installs it")

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
AXE = ROOT / ".cache/browser/node_modules/axe-core/axe.min.js"
OWNER = bytes([5] * 32)
ALICE = bytes([11] * 32)
VISITOR = bytes([12] * 32)  # has a purse and subscriptions where a relay is furnished


def chromium() -> str:
    """Where Chromium is, empty if nowhere."""
    named = os.environ.get("FARTHING_CHROMIUM", "")
    return named or next(filter(None, map(shutil.which, _NAMES)), "")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Ended with each file: Playwright keeps an event loop in the thread that other tests use."""
    path = chromium()
    if not path:
        pytest.skip("no Chromium: apt-get install chromium, or name one in FARTHING_CHROMIUM")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayProcess]:
    data = tmp_path_factory.mktemp("browser") / "data"
    relay = RelayProcess(
        data, port=free_port(), price_per_byte=PER_BYTE, secret_key=OWNER.hex(),
        name="The <i>Browser</i> relay",
    ).start()  # fmt: skip
    yield relay
    assert relay.stop() == 0
    relay.check_log()


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayProcess]:
    """One with something of everything to see."""
    from tests.browser.scenery import furnish

    data = tmp_path_factory.mktemp("furnished") / "data"
    relay = RelayProcess(
        data, port=free_port(), price_per_byte=PER_BYTE, secret_key=OWNER.hex(), upkeep_seconds=0
    ).start()
    furnish(relay, VISITOR)
    yield relay
    assert relay.stop() == 0
    relay.check_log()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that fails the test for any error in its script or any broken policy."""
    context = browser.new_context()
    made = context.new_page()
    troubles: list[str] = []
    made.on("pageerror", lambda error: troubles.append(str(error)))
    made.on(
        "console",
        lambda message: troubles.append(message.text) if message.type == "error" else None,
    )
    yield made
    context.close()
    assert troubles == []


def log_in_as(page: Any, secret: bytes) -> None:
    """A NIP-07 extension that holds this key."""

    def sign(text: str) -> str:
        wanted = json.loads(text)
        event = sign_event(
            secret,
            kind=wanted["kind"],
            content=wanted["content"],
            created_at=wanted["created_at"],
            tags=wanted["tags"],
        )
        return event.to_json()

    page.expose_function("signNostrEvent", sign)
    key = public_key_of(secret)
    page.add_init_script(
        "window.nostr = {"
        f" getPublicKey: async () => '{key}',"
        " signEvent: async (event) => JSON.parse(await signNostrEvent(JSON.stringify(event))) }"
    )


def serious_findings(page: Any) -> list[str]:
    """What axe-core finds serious or worse; nothing is looked at where it is not installed."""
    if not Path(AXE).exists():
        pytest.skip("axe-core is not installed: make test-browser")
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run().then((result) => result.violations)")
    return [each["id"] for each in found if each["impact"] in ("serious", "critical")]
