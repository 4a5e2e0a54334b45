"""The page at `/` in a real browser."""

import json
from typing import Any

import pytest

from farthing.ilp.packet import Fulfill
from farthing.nostr.events import public_key_of
from farthing.nostr.nip19 import Npub, encode
from tests.browser.conftest import ALICE, OWNER, VISITOR, log_in_as, serious_findings, sync_api
from tests.browser.scenery import publish, run, subscribe
from tests.e2e.authors import Author
from tests.e2e.paying import http, pay, payment_for, token_of
from tests.e2e.purses import pay_by_stream
from tests.e2e.relay_process import RelayProcess

expect = sync_api.expect


def test_it_says_who_the_relay_is_and_what_a_note_costs(relay: RelayProcess, page: Any) -> None:
    page.goto(relay.http)

    assert page.inner_text("h1") == "The <i>Browser</i> relay"
    page.wait_for_selector("#status.live")
    assert "$" in page.inner_text("#cost ~ p")
    assert page.inner_text("#nips").split(", ")[:3] == ["1", "9", "11"]
    assert "50" in page.inner_text("#nips"), "what is on, by the information document"
    page.fill("#text", "hello")
    expect(page.locator("#pricing")).to_contain_text(
        "$0.0000033 for 330 bytes: $1 pays for some 300,000 like it"
    )


def test_it_works_under_each_name_of_a_machine_without_a_public_url(
    relay: RelayProcess, page: Any
) -> None:
    """From a phone in the same network, for example, where 127.0.0.1 is the phone."""
    sockets: list[str] = []
    page.on("websocket", lambda socket: sockets.append(socket.url))
    own = relay.url.replace("127.0.0.1", "localhost")

    page.goto(own.replace("ws", "http", 1))
    page.wait_for_selector("#status.live")

    assert {url.rstrip("/") for url in sockets} == {own}
    assert page.inner_text("#relay") == page.inner_text("#c-relay") == own
    assert own.replace("ws", "http", 1) in page.inner_text("#c-quote")
    assert "127.0.0.1" not in page.inner_text("#c-peer")


def test_without_scripts_it_still_says_who_and_what_it_costs(
    relay: RelayProcess, browser: Any
) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(relay.http)

    text = page.inner_text("body")

    assert "costs about $" in text and relay.url in text
    for control in ("button", "input", "textarea"):
        assert not page.locator(control).filter(visible=True).all(), "nothing that does nothing"
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


HOSTILE = [
    {"content": "w" * 100_000},
    {"content": "\u202e\u2066" * 50_000},
    {"content": "javascript:alert(1) data:text/html,<script>alert(1)</script>"},
    {"content": "<svg/onload=alert(1)> <a href='javascript:alert(1)'>me</a>"},
    {"content": "https://evil.example/x.png?<script>alert(1)</script>"},
    {"content": "far away", "created_at": 10**18},
    {"content": "long ago", "created_at": -(10**18)},
    {"content": "untidy tags", "tags": [[], {}, None, ["e", 5], ["t", "<b>"]]},
]
NOT_EVENTS = [
    None, 5, "text", [], {}, {"pubkey": "<script>alert(1)</script>"}, {"content": {"toString": 1}},
    {"content": 5}, {"kind": "<b>1</b>"}, {"id": "\"]'); alert(1); ('"}, {"created_at": "now"},
]  # fmt: skip


def test_a_relay_that_sends_anything_at_all_does_no_harm(relay: RelayProcess, page: Any) -> None:
    """What a relay without checks would let through, such as words of 100 KB."""

    def event(number: int, **changes: object) -> dict[str, object]:
        plain = {"kind": 1, "created_at": 1_700_000_000 + number, "tags": [], "content": ""}
        return {"id": f"{number:064x}", "pubkey": f"{number:064x}", "sig": "", **plain, **changes}

    broken = [
        each if type(each) is not dict or not each else event(900 + n, **each)
        for n, each in enumerate(NOT_EVENTS)
    ]
    events = [event(n + 1, **each) for n, each in enumerate(HOSTILE)]

    def answer(socket: Any) -> None:
        def receive(text: str) -> None:
            verb, id, *_ = json.loads(text)
            if verb != "REQ":
                return
            for frame in ("no JSON", "{}", "null", "[]", '["EVENT"]', '["OK"]'):
                socket.send(frame)
            socket.send(json.dumps(["EVENT", id]))
            for each in (*broken, *events):
                socket.send(json.dumps(["EVENT", id, each]))
            socket.send(json.dumps(["EOSE", id]))

        socket.on_message(receive)

    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("dialog", lambda dialog: pytest.fail(f"a dialog: {dialog.message}"))
    page.route_web_socket(lambda url: url.rstrip("/") == relay.url, answer)
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(relay.http)
    expect(page.locator("#feed > li")).to_have_count(len(HOSTILE))

    assert page.locator("#feed").locator("img, script, a, iframe, svg, b").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert [url for url in asked if not url.startswith((relay.http, "data:"))] == []
    longest = max(page.locator("#feed > li").all_inner_texts(), key=len)
    assert len(longest) < 2_200


def test_a_page_that_gets_no_answer_asks_once_what_is_still_stored(
    relay: RelayProcess, page: Any
) -> None:
    publish(relay, "there before and after")
    asked: list[str] = []

    def pass_on(socket: Any) -> None:
        server = socket.connect_to_server()

        def send(text: str) -> None:
            verb, _, *filters = json.loads(text)
            if verb == "REQ" and "ids" in filters[0]:
                asked.append(text)
            else:
                server.send(text)

        socket.on_message(send)

    page.route_web_socket(lambda url: url.rstrip("/") == relay.url, pass_on)
    page.clock.install()
    page.goto(relay.http)
    page.wait_for_selector("#feed >> text=there before and after")

    for _ in range(5):
        page.clock.run_for(61_000)

    assert len(asked) <= 1, "without an answer nothing more is asked"


def test_an_author_is_shown_by_name_beside_the_key(relay: RelayProcess, page: Any) -> None:
    ann = Author()
    profile = ann.event(json.dumps({"name": "Ann \u202e<b>Example</b> " + "long " * 20}), kind=0)
    assert isinstance(pay(relay, payment_for(relay, ann, profile)), Fulfill)
    noise = Author()
    broken = noise.event("no JSON", kind=0)
    assert isinstance(pay(relay, payment_for(relay, noise, broken)), Fulfill)
    known, nameless = publish(relay, "by Ann", ann), publish(relay, "by somebody", noise)

    page.goto(relay.http)
    row = page.locator(f'[data-id="{known["id"]}"] .meta button')

    key = encode(Npub(ann.pubkey))[:12]
    expect(row).to_have_text(f"Ann <b>Example</b> long {key}…")
    unnamed = page.locator(f'[data-id="{nameless["id"]}"] .meta button')
    expect(unnamed).to_have_text(f"{encode(Npub(noise.pubkey))[:12]}…")
    late = publish(relay, "again by Ann", ann)
    expect(page.locator(f'[data-id="{late["id"]}"] .meta button')).to_contain_text("Ann")


def test_the_feed_is_filtered_by_author(relay: RelayProcess, page: Any) -> None:
    one, other = Author(), Author()
    publish(relay, "by the one", one)
    publish(relay, "by the other", other)
    page.goto(relay.http)
    page.wait_for_selector("text=by the other")

    page.fill("#f-author", one.pubkey)
    page.click("#filter button[type=submit]")

    page.wait_for_selector("text=by the one")
    expect(page.locator("#feed")).not_to_contain_text("other")
    page.click("#all")
    page.wait_for_selector("text=by the other")


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
    expect(page.locator("#left")).to_contain_text("1,000,000 units", timeout=30_000)
    assert "Paid in by wallet" in page.inner_text("#movements")

    page.fill("#note", "from the browser")
    page.click("#post button")
    page.wait_for_selector("#post-note.good")
    page.wait_for_selector("#feed >> text=from the browser")
    expect(page.locator("#left")).not_to_contain_text("1,000,000 units")


def open_purse(relay: RelayProcess, page: Any, secret: bytes = VISITOR) -> None:
    log_in_as(page, secret)
    page.goto(relay.http)
    page.wait_for_selector("#status.live")
    page.click("#login")
    page.wait_for_selector("#logged-in:not([hidden])")


def test_the_owner_is_not_told_to_fill_a_purse(relay: RelayProcess, page: Any) -> None:
    open_purse(relay, page, OWNER)
    assert page.inner_text("#left-more") == "you are the owner: what you write here is free"
    assert page.inner_text("#note-price") == ""

    page.fill("#note", "by the owner")
    page.click("#post button")

    page.wait_for_selector("#post-note.good")


def test_the_qr_code_has_white_around_it_in_the_dark_too(
    furnished: RelayProcess, page: Any
) -> None:
    """Four modules on each side, or cameras do not find it."""
    page.emulate_media(color_scheme="dark")
    open_purse(furnished, page)

    border, module, colour = page.evaluate(
        """(() => {
            const qr = document.getElementById('qr')
            const { borderLeftWidth: width, borderLeftColor: colour } = getComputedStyle(qr)
            return [parseFloat(width), qr.clientWidth / qr.width, colour]
        })()"""
    )

    assert border >= 4 * module
    assert colour == "rgb(255, 255, 255)"


def test_somebody_without_an_extension_is_told(relay: RelayProcess, page: Any) -> None:
    page.goto(relay.http)
    page.click("#login")
    page.wait_for_selector("#login-note >> text=No Nostr extension")


@pytest.mark.parametrize(
    ("thrown", "told"),
    [("'denied'", "denied"), ("undefined", "the extension has refused"), ("{}", "has refused")],
)
@pytest.mark.parametrize("path", ["/", "/operator"])
def test_an_extension_that_refuses_is_told(
    relay: RelayProcess, page: Any, path: str, thrown: str, told: str
) -> None:
    """Extensions reject with an error, with a text, or with nothing."""
    page.add_init_script(f"window.nostr = {{ getPublicKey: async () => {{ throw {thrown} }} }}")
    page.goto(f"{relay.http}{path}")
    if path == "/":
        page.wait_for_selector("#status.live")

    page.click("#login")

    expect(page.locator("#login-note, #gate-note")).to_contain_text(told)
    expect(page.locator("#login")).to_be_enabled()


def test_own_subscriptions_are_listed_and_ended(furnished: RelayProcess, page: Any) -> None:
    subscribe(furnished, VISITOR, "soon over")
    open_purse(furnished, page)
    card = page.locator("#mine > li", has_text="morning-news")
    shown = card.inner_text()
    assert "active" in shown and '{"kinds":[1]}' in shown
    assert "$0.00009896" in shown and "59 minutes" in shown and "4 at $0.00000001" in shown
    before = int(run(furnished, "purse", "show", public_key_of(VISITOR)).count("subscription"))

    card = page.locator("#mine > li", has_text="soon over")
    card.get_by_role("button", name="End soon over").click()
    card.get_by_role("button", name="take $0.000099 back").click()

    page.wait_for_selector("#mine-note.good >> text=$0.000099 went into your purse")
    page.wait_for_selector("#mine > li.over >> text=Subscription closed")
    row = page.locator("#movements tr", has_text="+$0.000099").first
    assert "Back from a subscription" in row.inner_text()
    after = run(furnished, "purse", "show", public_key_of(VISITOR)).count("subscription")
    assert after == before + 1


def test_a_purse_is_filled_by_a_packet_that_was_quoted(relay: RelayProcess, page: Any) -> None:
    open_purse(relay, page, bytes([13] * 32))
    page.click("#packet summary")
    page.fill("#packet-amount", "0.0000000001")
    page.click("#packet-quote button")
    page.wait_for_selector("#packet-note.error >> text=at most 9 decimals")
    page.fill("#packet-amount", "0.02")
    page.click("#packet-quote button")
    page.wait_for_selector("#packet-quoted:not([hidden])")
    assert ".purse." in page.inner_text("#packet-facts")

    page.fill("#packet-token", token_of(relay))
    page.click("#packet-pay button")

    page.wait_for_selector("#packet-note.good >> text=$0.02 is in your purse")
    expect(page.locator("#left")).to_have_text("$0.02 (20,000,000 units)")


def test_the_routes_are_drawn_from_the_table_in_force(furnished: RelayProcess, page: Any) -> None:
    page.goto(furnished.http)
    page.wait_for_selector("#graph svg")

    text = page.evaluate(
        "[...document.querySelectorAll('#graph text')].map((each) => each.textContent)"
    )
    assert "bob · $0.00000011" in text and "grace · $0.00000017" in text
    assert "heidi · $0.00000036, 3 hops" in text
    page.click("#graph-section summary")
    row = page.locator("#routes tr", has_text="g.agent.frank").inner_text()
    assert row.split() == ["g.agent.frank", "bob", "$0.00000022", "2"]


def test_everything_is_done_by_keyboard(relay: RelayProcess, page: Any) -> None:
    log_in_as(page, ALICE)
    page.goto(relay.http)
    page.wait_for_selector("#status.live")

    def tab_to(id: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.id") == id:
                return
        pytest.fail(f"Tab does not lead to {id}")

    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    tab_to("login")
    page.keyboard.press("Enter")
    page.wait_for_selector("#logged-in:not([hidden])")
    assert page.evaluate("document.activeElement.id") == "purse-title"
    tab_to("note")
    page.keyboard.type("typed without a mouse")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("#post-note.good, #post-note.error")
    tab_to("f-kind")
    page.keyboard.type("7777")  # a kind that no test writes
    page.keyboard.press("Enter")
    page.wait_for_selector("#feed-empty:not([hidden])")


@pytest.mark.parametrize("logged_in", [False, True])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
def test_nothing_is_in_the_way_of_a_screen_reader(
    furnished: RelayProcess, browser: Any, scheme: str, width: int, logged_in: bool
) -> None:
    context = browser.new_context(
        color_scheme=scheme, viewport={"width": width, "height": 900}, bypass_csp=True
    )
    page = context.new_page()
    if logged_in:
        open_purse(furnished, page)
    else:
        page.goto(furnished.http)
        page.wait_for_selector("#status.live")
    page.wait_for_selector("#graph svg")

    assert serious_findings(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    context.close()


def test_an_option_of_a_command_is_not_torn_apart_on_a_phone(
    relay: RelayProcess, page: Any
) -> None:
    """`--relay` read as `--` and `relay` is another command."""
    page.goto(relay.http.replace("127.0.0.1", "localhost"))
    page.wait_for_selector("#status.live")

    torn = """[...document.querySelectorAll('.copy code')].flatMap((code) => {
            const texts = document.createTreeWalker(code, NodeFilter.SHOW_TEXT), torn = []
            for (let text; (text = texts.nextNode());) {
                for (const { index, 0: option } of text.data.matchAll(/(?<!\\S)--?[a-z]+/g)) {
                    const range = document.createRange()
                    range.setStart(text, index)
                    range.setEnd(text, index + option.length)
                    if (range.getClientRects().length > 1) torn.push(option)
                }
            }
            return torn
        })"""
    for width in range(320, 500, 10):
        page.set_viewport_size({"width": width, "height": 844})
        assert page.evaluate(torn) == [], width
    assert "--relay ws://localhost" in page.inner_text("#c-peer")


def test_first_paint_needs_little(relay: RelayProcess, page: Any) -> None:
    """What Chromium waits for before it paints; the scripts come after it."""
    page.goto(relay.http)
    page.wait_for_selector("#feed li, #feed-empty:not([hidden])")

    needed = page.evaluate(
        """[
            ...performance.getEntriesByType('navigation'),
            ...performance.getEntriesByType('resource')
                .filter((each) => each.renderBlockingStatus === 'blocking'),
        ].map((each) => each.decodedBodySize)"""
    )
    everything = page.evaluate(
        "performance.getEntriesByType('resource').map((each) => each.decodedBodySize)"
    )

    assert 2 <= len(needed) <= 3
    assert sum(needed) <= 100_000
    assert sum(needed) + sum(everything) <= 100_000, "the scripts of the first look included"


def test_nothing_inline_and_nothing_from_elsewhere(relay: RelayProcess) -> None:
    answer = http("GET", relay.http, Accept="text/html")
    policy = answer.headers["Content-Security-Policy"]

    assert "default-src 'none'" in policy and "unsafe" not in policy
    for path in ("/", "/operator"):
        text = http("GET", f"{relay.http}{path}", Accept="text/html").data.decode()
        assert "<style" not in text and " style=" not in text and " onclick=" not in text
        assert "https://" not in text.replace(relay.http, "")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["/purse", f"/purse/{public_key_of(ALICE)}"])
def test_the_pages_about_purses_are_fit_to_read(
    relay: RelayProcess, page: Any, path: str, scheme: str
) -> None:
    """On a phone, in the scheme that the visitor has chosen, and under a policy without
    `unsafe-inline`, which lets the relay's own style in."""
    policy = http("GET", f"{relay.http}{path}", Accept="text/html").headers
    assert "unsafe" not in policy["Content-Security-Policy"]
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{relay.http}{path}")

    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("document.querySelector('h1').getBoundingClientRect().left") == 16
    ink = page.evaluate("getComputedStyle(document.body).color")
    assert ink == ("rgb(28, 27, 24)" if scheme == "light" else "rgb(236, 232, 221)")


def test_files_of_one_version_are_loaded_and_kept(relay: RelayProcess, page: Any) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.removeprefix(relay.http)))
    open_purse(relay, page)
    page.click("#packet summary")
    page.wait_for_selector("#price:not(:empty)")

    files = {path for path in asked if path.startswith("/assets/")}
    assert {path.rsplit("/", 1)[1] for path in files} >= {
        "page.css",
        "page.js",
        "purse.js",
        "qr.js",
    }
    assert len({path.rsplit("/", 1)[0] for path in files}) == 1, "one folder"
    for path in files:
        answer = http("GET", f"{relay.http}{path}")
        assert "immutable" in answer.headers["Cache-Control"]


def test_an_open_page_of_an_older_version_says_that_it_must_be_reloaded(
    relay: RelayProcess, browser: Any
) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.route("**/purse.js", lambda route: route.fulfill(status=404, body=""))
    log_in_as(page, ALICE)
    page.goto(relay.http)
    page.wait_for_selector("#status.live")

    page.click("#login")

    page.wait_for_selector("#login-note >> text=reload the page")
    context.close()
