"""`pay.js` as a page of the relay imports it: what is paid in the browser is stored."""

from typing import Any

from tests.browser.conftest import sync_api
from tests.e2e.authors import Author
from tests.e2e.paying import quote_for, token_of
from tests.e2e.relay_process import RelayProcess
from tests.e2e.stores import exported_ids

PAY = """async ([relay, event, token, most]) => {
  const { pay } = await import('/assets/pay.js')
  try {
    const receipt = await pay(relay, event, { token, maxAmount: BigInt(most) })
    return { id: receipt.eventId, amount: String(receipt.amount), scheme: receipt.scheme }
  } catch (error) {
    return { error: error.name }
  }
}"""


def test_a_page_pays_for_an_event(relay: RelayProcess, page: Any) -> None:
    event = Author().event("paid in a browser")
    price = quote_for(relay, event)["price"]
    page.goto(relay.http)

    receipt = page.evaluate(PAY, [relay.url, event, token_of(relay), price])

    assert receipt == {"id": event["id"], "amount": price, "scheme": "quote"}
    sync_api.expect(page.locator("text=paid in a browser")).to_be_visible()
    assert exported_ids(relay.data, {"ids": [event["id"]]}) == {event["id"]}


def test_a_page_pays_no_more_than_it_may(relay: RelayProcess, page: Any) -> None:
    event = Author().event("too dear")
    price = int(quote_for(relay, event)["price"])
    page.goto(relay.http)

    failed = page.evaluate(PAY, [relay.url, event, token_of(relay), str(price - 1)])

    assert failed == {"error": "PaymentFailed"}
    assert exported_ids(relay.data, {"ids": [event["id"]]}) == set()


def test_a_page_of_somebody_else_loads_it_from_here(relay: RelayProcess, browser: Any) -> None:
    """With that page's own policy, which is not ours."""
    context = browser.new_context(bypass_csp=True)
    page = context.new_page()
    page.goto(relay.http.replace("127.0.0.1", "localhost"))

    found = page.evaluate(
        "(url) => import(url).then((module) => typeof module.pay)", f"{relay.http}/assets/pay.js"
    )

    assert found == "function"
    context.close()
