"""Pictures of the page and the console for the docs: `make screenshots`."""

import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from tests.browser.conftest import FLAGS, OWNER, VISITOR, chromium, log_in_as
from tests.browser.scenery import furnish
from tests.e2e.paying import PER_BYTE, free_port
from tests.e2e.relay_process import ROOT, RelayProcess

FOLDER = ROOT / "docs/screenshots"
SIZES = {"phone": (390, 844), "desktop": (1200, 900)}


def take(relay: RelayProcess, browser: Any) -> None:
    for size, (width, height) in SIZES.items():
        for scheme in ("light", "dark"):
            for name, secret in (("page", VISITOR), ("console", OWNER)):
                context = browser.new_context(
                    color_scheme=scheme, viewport={"width": width, "height": height}
                )
                page = context.new_page()
                log_in_as(page, secret)
                page.goto(f"{relay.http}{'/operator' if name == 'console' else '/'}")
                if name == "page":
                    page.wait_for_selector("#status.live")
                page.click("#login")
                shown = "#console" if name == "console" else "#logged-in"
                page.wait_for_selector(f"{shown}:not([hidden])")
                if name == "page":
                    page.wait_for_selector("#graph svg")
                    page.evaluate("scrollTo(0, 0)")
                target = FOLDER / f"{name}-{size}-{scheme}.png"
                page.screenshot(path=target, full_page=True)
                context.close()


def main() -> int:
    path = chromium()
    if not path:
        print("no Chromium: apt-get install chromium", file=sys.stderr)
        return 1
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        relay = RelayProcess(
            Path(folder) / "data", port=free_port(), price_per_byte=PER_BYTE,
            secret_key=OWNER.hex(), upkeep_seconds=0,
        ).start()  # fmt: skip
        try:
            furnish(relay, VISITOR)
            browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
            take(relay, browser)
            browser.close()
        finally:
            relay.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
