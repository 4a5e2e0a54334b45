"""The operator's console in a real browser."""

from pathlib import Path
from typing import Any

import pytest

from farthing.ilp.packet import Fulfill
from farthing.nostr.events import public_key_of
from farthing.nostr.nip19 import Npub, encode
from tests.browser.conftest import ALICE, OWNER, VISITOR, log_in_as, serious_findings, sync_api
from tests.browser.scenery import publish, publish_as, run, subscribe
from tests.e2e.authors import Author
from tests.e2e.paying import free_port, http, pay, payment_for
from tests.e2e.relay_process import RelayProcess
from tests.e2e.stores import exported_ids

expect = sync_api.expect


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


def test_the_console_is_opened_through_a_tunnel(tmp_path: Path, page: Any) -> None:
    """At another address than the public one, for which requests are signed."""
    relay = RelayProcess(
        tmp_path / "data", port=free_port(), secret_key=OWNER.hex(),
        relay_url="wss://relay.example",
    ).start()  # fmt: skip
    try:
        open_console(relay, page)
        page.fill("#p-text", "By tunnel")
        page.click("#profile button")
        done(page, "Change: done.")
    finally:
        relay.stop()


def test_without_tls_the_console_says_what_is_missing(relay: RelayProcess, page: Any) -> None:
    page.add_init_script("Object.defineProperty(crypto, 'subtle', { value: undefined })")
    log_in_as(page, OWNER)
    page.goto(f"{relay.http}/operator")

    page.click("#login")

    page.wait_for_selector("#gate-note >> text=open this page by https")


def test_nobody_else_gets_in(relay: RelayProcess, page: Any) -> None:
    log_in_as(page, ALICE)
    page.goto(f"{relay.http}/operator")
    page.click("#login")

    expect(page.locator("#gate-note")).to_contain_text("owner")
    assert page.is_hidden("#console")


def test_a_banned_keys_events_are_gone_from_the_feed(relay: RelayProcess, page: Any) -> None:
    spammer = Author()
    publish(relay, "buy my coin", spammer)
    open_console(relay, page)

    page.select_option("#r-kind", "banpubkey")
    page.fill("#r-value", encode(Npub(spammer.pubkey)))
    page.fill("#r-reason", "spam")
    page.click("#rule button")
    page.wait_for_selector("#note.good")
    assert "spam" in page.inner_text("#rules")

    page.goto(relay.http)
    page.wait_for_selector("#status.live")
    page.fill("#f-author", spammer.pubkey)
    page.click("#filter button[type=submit]")
    page.wait_for_selector("#feed-empty:not([hidden])")
    assert page.locator("#feed li").count() == 0


def test_an_open_page_loses_what_is_banned_or_deleted(relay: RelayProcess, page: Any) -> None:
    author = Author()
    banned = publish(relay, "to be banned", Author())
    deleted = publish(relay, "to be deleted", author)
    publish(relay, "to stay", author)
    page.clock.install()
    page.goto(relay.http)
    page.wait_for_selector("#feed >> text=to be banned")
    page.wait_for_selector("#feed >> text=to be deleted")

    run(relay, "ban", "--event", banned["id"])
    removal = author.event("", kind=5, tags=[["e", deleted["id"]]])
    assert isinstance(pay(relay, payment_for(relay, author, removal)), Fulfill)
    page.clock.run_for(61_000)

    expect(page.locator("#feed")).not_to_contain_text("to be", timeout=30_000)
    assert "to stay" in page.inner_text("#feed")


def test_the_owner_grants_money_to_a_purse(relay: RelayProcess, page: Any) -> None:
    open_console(relay, page)

    page.fill("#g-key", Author().pubkey)
    page.fill("#g-amount", "0.005")
    page.click("#grant button")

    page.wait_for_selector("#note.good")
    assert "$0.005" in page.inner_text("#purses")


def row_of(page: Any, table: str, text: str) -> Any:
    row = page.locator(f"#{table} tr", has_text=text)
    assert row.count() == 1, page.inner_text(f"#{table}")
    return row


def done(page: Any, what: str) -> None:
    page.wait_for_selector(f"#note.good >> text={what}")


def test_every_section_tells_what_there_is(furnished: RelayProcess, page: Any) -> None:
    open_console(furnished, page)

    tiles = page.inner_text("#tiles")
    assert all(each in tiles for each in ("connections", "revenue", "reports to look at"))
    assert row_of(page, "kinds", "1984").inner_text().split()[:2] == ["1984", "report"]
    assert "amount below the price" in row_of(page, "refusals", "F04").inner_text()
    assert "1 stored, 1 due, 1 failed" in page.inner_text("#broadcasts")
    assert "not on the list of this relay" in page.inner_text("#broadcasts")
    assert "$0.000098" in row_of(page, "subscriptions", "morning-news").inner_text()
    queues = page.inner_text("#queues")
    assert all(each in queues for each in ("fanout", "sequencer", "push", "search"))
    assert "sells followers" in page.inner_text("#rules")


def test_a_peers_limits_are_changed_and_it_is_stopped(furnished: RelayProcess, page: Any) -> None:
    open_console(furnished, page)
    row = row_of(page, "peers", "bob")
    assert row.locator("input").first.input_value() == "1"

    row.locator("input").first.fill("2.5")
    row.locator("input").last.fill("0.1")
    row.get_by_role("button", name="Save").click()
    done(page, "Limits of bob: done.")
    row_of(page, "peers", "bob").get_by_role("button", name="Stop").click()
    done(page, "Stop bob: done.")

    listed = run(furnished, "peers", "show", "bob")
    assert "2500000000" in listed and "100000000" in listed
    assert "(stopped)" in row_of(page, "peers", "bob").inner_text()
    row_of(page, "peers", "bob").get_by_role("button", name="Start").click()
    done(page, "Start bob: done.")


def test_enter_saves_a_limit(furnished: RelayProcess, page: Any) -> None:
    open_console(furnished, page)
    limit = row_of(page, "peers", "carol").locator("input").first

    limit.fill("1.25")
    limit.press("Enter")

    done(page, "Limits of carol: done.")
    assert "1250000000" in run(furnished, "peers", "show", "carol")


def test_a_limit_that_is_no_amount_is_refused(furnished: RelayProcess, page: Any) -> None:
    open_console(furnished, page)
    row = row_of(page, "peers", "carol")

    row.locator("input").first.fill("much")
    row.get_by_role("button", name="Save").click()

    page.wait_for_selector("#note.error >> text=got much")


def test_what_somebody_types_is_not_lost_when_figures_are_read_again(
    furnished: RelayProcess, page: Any
) -> None:
    page.clock.install()
    open_console(furnished, page)
    stored = page.inner_text("#tiles")
    row_of(page, "peers", "carol").locator("input").first.fill("77")
    page.click("#now")  # the field has no focus any more
    publish(furnished, "one more event for the figures")

    page.clock.run_for(11_000)
    expect(page.locator("#tiles")).not_to_have_text(stored, use_inner_text=True, timeout=30_000)

    assert row_of(page, "peers", "carol").locator("input").first.input_value() == "77"


def test_a_relay_that_does_not_answer_is_told_until_it_does(
    furnished: RelayProcess, browser: Any
) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.clock.install()
    open_console(furnished, page)

    context.set_offline(True)
    page.clock.run_for(11_000)
    page.wait_for_selector("#note.error >> text=the relay does not answer")
    context.set_offline(False)
    page.clock.run_for(11_000)

    expect(page.locator("#note")).to_be_empty(timeout=30_000)
    context.close()


def test_a_purse_is_frozen_and_thawed(furnished: RelayProcess, page: Any) -> None:
    open_console(furnished, page)
    short = encode(Npub(public_key_of(VISITOR)))[:16]

    row_of(page, "purses", short).get_by_role("button", name="Freeze").click()
    done(page, "Freeze a purse: done.")
    assert "(frozen)" in row_of(page, "purses", short).inner_text()
    row_of(page, "purses", short).get_by_role("button", name="Thaw").click()
    done(page, "Thaw a purse: done.")


def test_the_operator_ends_a_subscription(furnished: RelayProcess, page: Any) -> None:
    subscribe(furnished, VISITOR, "to-be-ended")
    open_console(furnished, page)

    row_of(page, "subscriptions", "to-be-ended").get_by_role("button", name="End").click()
    row_of(page, "subscriptions", "to-be-ended").get_by_role("button", name="End it?").click()

    done(page, "End to-be-ended: done.")
    ended = row_of(page, "subscriptions", "to-be-ended").inner_text()
    assert "closed by the operator" in ended


def test_a_reported_event_is_kept_and_another_banned(furnished: RelayProcess, page: Any) -> None:
    spam = publish(furnished, "reported as spam")
    publish_as(furnished, bytes([42] * 32), 1984, [["e", spam["id"], "impersonation"]])
    open_console(furnished, page)

    row = row_of(page, "reported", "impersonation")
    assert "reported as spam" in row.inner_text(), "the text of the event"
    row.get_by_role("button", name="Ban event").click()
    row.get_by_role("button", name="Remove this event?").click()
    done(page, "Ban event: done.")
    row_of(page, "reported", "Spam costs what").get_by_role("button", name="Keep").click()
    done(page, "Keep: done.")

    assert "Nothing is reported." in page.inner_text("#reported")
    assert spam["id"] in row_of(page, "rules", "banned event").inner_text()
    assert exported_ids(furnished.data, {"ids": [spam["id"]]}) == set()
    row_of(page, "rules", "kept event").get_by_role("button", name="Take back").click()
    done(page, "Take a rule back: done.")
    assert "Spam costs what" in page.inner_text("#reported")


def test_a_report_comes_up_by_itself_and_its_author_is_banned(
    furnished: RelayProcess, page: Any
) -> None:
    page.clock.install()
    open_console(furnished, page)
    crook = Author()
    bad = publish(furnished, "send me your keys", crook)
    publish_as(furnished, bytes([43] * 32), 1984, [["e", bad["id"], "spam " * 300]])

    page.clock.run_for(11_000)
    page.wait_for_selector("#reported >> text=send me your keys")
    row = row_of(page, "reported", "send me your keys")
    row.get_by_role("button", name="Ban author").click()
    row.get_by_role("button", name="Remove all of this author?").click()

    done(page, "Ban author: done.")
    assert encode(Npub(crook.pubkey)) in row_of(page, "rules", "spam spam").inner_text()
    assert "send me your keys" not in page.inner_text("#reported")


@pytest.mark.parametrize(
    ("method", "typed", "shown"),
    [
        ("banevent", "e" * 64, "banned event"),
        ("allowpubkey", public_key_of(bytes([61] * 32)), "free key"),
        ("allowkind", "30023", "allowed kind"),
        ("disallowkind", "30024", "refused kind"),
        ("blockip", "192.0.2.7", "blocked address"),
    ],
)
def test_a_rule_is_set_and_taken_back(
    furnished: RelayProcess, page: Any, method: str, typed: str, shown: str
) -> None:
    open_console(furnished, page)
    page.select_option("#r-kind", method)
    page.fill("#r-value", typed)
    page.click("#rule button")
    done(page, "Add a rule: done.")
    shown_value = encode(Npub(typed)) if method == "allowpubkey" else typed

    row_of(page, "rules", shown_value).get_by_role("button", name="Take back").click()

    done(page, "Take a rule back: done.")
    assert shown_value not in page.inner_text("#rules"), shown


def test_a_new_name_stands_on_the_page_at_once(relay: RelayProcess, page: Any) -> None:
    open_console(relay, page)
    page.fill("#p-text", "Groat & <b>sons</b>")
    page.click("#profile button")
    done(page, "Change: done.")

    page.goto(relay.http)

    expect(page.locator("h1")).to_have_text("Groat & <b>sons</b>")
    expect(page).to_have_title("Groat & <b>sons</b>")
    without_scripts = http("GET", relay.http, Accept="text/html").data.decode()
    assert without_scripts.count("Groat &amp; &lt;b&gt;sons&lt;/b&gt;") == 2


@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_in_the_way_of_a_screen_reader(
    furnished: RelayProcess, browser: Any, scheme: str, width: int
) -> None:
    context = browser.new_context(
        bypass_csp=True, color_scheme=scheme, viewport={"width": width, "height": 900}
    )
    page = context.new_page()
    open_console(furnished, page)

    assert serious_findings(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    context.close()
