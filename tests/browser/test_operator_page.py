"""The operator's console in a real browser."""

from typing import Any

from tests.browser.conftest import OWNER, log_in_as, serious_findings
from tests.browser.test_page import ALICE, publish
from tests.e2e.authors import Author
from tests.e2e.relay_process import RelayProcess


def open_console(relay: RelayProcess, page: Any) -> None:
    log_in_as(page, OWNER)
    page.goto(f"{relay.http}/operator")
    page.click("#login")
    page.wait_for_selector("#console:not([hidden])")


def test_it_shows_peers_and_figures_to_the_owner(relay: RelayProcess, page: Any) -> None:
    publish(relay, "counted")
    open_console(relay, page)

    assert "local" in page.inner_text("#peers")
    assert "revenue since the start" in page.inner_text("#tiles")


def test_nobody_else_gets_in(relay: RelayProcess, page: Any) -> None:
    log_in_as(page, ALICE)
    page.goto(f"{relay.http}/operator")
    page.click("#login")

    page.wait_for_function("document.getElementById('gate-note').textContent.includes('owner')")
    assert page.is_hidden("#console")


def test_a_banned_keys_events_are_gone_from_the_feed(relay: RelayProcess, page: Any) -> None:
    spammer = Author()
    publish(relay, "buy my coin", spammer)
    open_console(relay, page)

    page.fill("#b-what", spammer.pubkey)
    page.fill("#b-reason", "spam")
    page.click("#ban button")
    page.wait_for_selector("#note.good")
    page.wait_for_selector("#banned >> text=spam")

    page.goto(relay.http)
    page.wait_for_selector("#status.live")
    page.fill("#f-author", spammer.pubkey)
    page.click("#filter button[type=submit]")
    assert page.locator("#feed li").count() == 0


def test_the_owner_grants_money_to_a_purse(relay: RelayProcess, page: Any) -> None:
    open_console(relay, page)

    page.fill("#g-key", Author().pubkey)
    page.fill("#g-amount", "5000000")
    page.click("#grant button")

    page.wait_for_selector("#note.good")
    assert "$0.005" in page.inner_text("#purses")


def test_nothing_is_in_the_way_of_a_screen_reader(relay: RelayProcess, browser: Any) -> None:
    context = browser.new_context(bypass_csp=True)
    page = context.new_page()
    open_console(relay, page)

    assert serious_findings(page) == []
    context.close()
