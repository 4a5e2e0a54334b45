"""The page at `/` in a real browser."""

from typing import Any

import pytest

from farthing.ilp.packet import Fulfill
from farthing.nostr.events import public_key_of
from tests.browser.conftest import log_in_as, serious_findings
from tests.e2e.authors import Author
from tests.e2e.paying import http, pay, payment_for, token_of
from tests.e2e.purses import pay_by_stream
from tests.e2e.relay_process import RelayProcess

ALICE = bytes([11] * 32)


def publish(relay: RelayProcess, content: str, author: Author | None = None) -> dict[str, Any]:
    author = author or Author()
    event = author.event(content)
    assert isinstance(pay(relay, payment_for(relay, author, event)), Fulfill)
    return event


def test_it_says_who_the_relay_is_and_what_a_note_costs(relay: RelayProcess, page: Any) -> None:
    page.goto(relay.http)

    assert page.inner_text("h1") == "The <i>Browser</i> relay"
    page.wait_for_selector("#status.live")
    assert "$" in page.inner_text("#cost ~ p")
    page.fill("#text", "hello")
    page.wait_for_function("document.getElementById('price').textContent.includes('bytes')")
    assert "$0.0000033 for 330 bytes" in page.inner_text("#price")


def test_without_scripts_it_still_says_who_and_what_it_costs(
    relay: RelayProcess, browser: Any
) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(relay.http)

    text = page.inner_text("body")

    assert "costs about $" in text and relay.url in text
    context.close()


def test_the_feed_moves_when_an_event_is_paid(relay: RelayProcess, page: Any) -> None:
    page.goto(relay.http)
    page.wait_for_selector("#status.live")

    publish(relay, "it moves")

    page.wait_for_selector("text=it moves")


@pytest.mark.parametrize(
    "content",
    [
        "<img src=x onerror=alert(1)><script>window.hacked=1</script>",
        "javascript:alert(1)",
        "\u202egnp.exe \u2066\u2067 turned",
        "w" * 20_000,
        "https://tracker.example/pixel.png",
    ],
)
def test_a_hostile_event_does_nothing(relay: RelayProcess, page: Any, content: str) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("dialog", lambda dialog: pytest.fail(f"a dialog: {dialog.message}"))
    event = publish(relay, content)

    page.goto(relay.http)
    row = page.wait_for_selector(f'[data-id="{event["id"]}"]')

    assert row.query_selector_all("img, script, a, iframe") == []
    assert page.evaluate("window.hacked") is None
    assert [url for url in asked if not url.startswith((relay.http, "data:"))] == []
    width = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert width <= 0


def test_the_feed_is_filtered_by_author(relay: RelayProcess, page: Any) -> None:
    one, other = Author(), Author()
    publish(relay, "by the one", one)
    publish(relay, "by the other", other)
    page.goto(relay.http)
    page.wait_for_selector("text=by the other")

    page.fill("#f-author", one.pubkey)
    page.click("#filter button[type=submit]")

    page.wait_for_selector("text=by the one")
    page.wait_for_function("!document.getElementById('feed').textContent.includes('other')")


def test_a_person_logs_in_fills_the_purse_and_posts_from_it(relay: RelayProcess, page: Any) -> None:
    log_in_as(page, ALICE)
    page.goto(relay.http)
    page.wait_for_selector("#status.live")
    page.click("#login")
    page.wait_for_selector("#logged-in:not([hidden])")
    assert page.inner_text("#left").startswith("$0 ")
    assert page.inner_text("#pointer").startswith("$127.0.0.1")
    assert page.evaluate("document.getElementById('qr').width") > 21

    pay_by_stream(relay.http, token_of(relay), public_key_of(ALICE), [400_000, 600_000])
    page.reload()
    page.wait_for_selector("#status.live")
    page.click("#login")
    page.wait_for_selector("#logged-in:not([hidden])")
    assert "1000000 units" in page.inner_text("#left")

    page.fill("#note", "from the browser")
    page.click("#post button")
    page.wait_for_selector("#post-note.good")
    page.wait_for_selector("#feed >> text=from the browser")
    assert "1000000 units" not in page.inner_text("#left")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
def test_nothing_is_in_the_way_of_a_screen_reader(
    relay: RelayProcess, browser: Any, scheme: str, width: int
) -> None:
    context = browser.new_context(
        color_scheme=scheme, viewport={"width": width, "height": 900}, bypass_csp=True
    )
    page = context.new_page()
    page.goto(relay.http)
    page.wait_for_selector("#status.live")

    assert serious_findings(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    context.close()


def test_first_paint_needs_little(relay: RelayProcess) -> None:
    """HTML and CSS: the scripts come after it."""
    page = http("GET", relay.http, Accept="text/html").data
    style = http("GET", f"{relay.http}/assets/page.css").data

    assert len(page) + len(style) <= 100_000
    assert page.count(b'rel="stylesheet"') == 1


def test_nothing_inline_and_nothing_from_elsewhere(relay: RelayProcess) -> None:
    answer = http("GET", relay.http, Accept="text/html")
    policy = answer.headers["Content-Security-Policy"]

    assert "default-src 'none'" in policy and "unsafe" not in policy
    for path in ("/", "/operator"):
        text = http("GET", f"{relay.http}{path}", Accept="text/html").data.decode()
        assert "<style" not in text and " style=" not in text and " onclick=" not in text
        assert "https://" not in text.replace(relay.http, "")
