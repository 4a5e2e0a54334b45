"""An EventSource in a real browser: it receives events, loses the server, comes back by itself and
misses nothing."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.aether_client import AetherAuthor
from tests.e2e.paying import free_port, http
from tests.e2e.relay_process import RelayProcess

_LISTEN = """
url => {
  window.got = [];
  const source = new EventSource(url);
  source.addEventListener('event', (message) => {
    window.got.push([Number(message.lastEventId), JSON.parse(message.data).event.content]);
  });
}
"""


def post(relay: RelayProcess, path: str, body: object) -> Any:
    return http("POST", f"{relay.http}{path}", json.dumps(body).encode()).json()


@pytest.fixture
def open_relay(tmp_path: Path) -> Iterator[RelayProcess]:
    relay = RelayProcess(tmp_path / "data", price_per_byte=0, port=free_port()).start()
    yield relay
    relay.kill()
    relay.check_log()


def test_it_comes_back_and_misses_nothing(open_relay: RelayProcess, browser: Any) -> None:
    relay = open_relay
    author = AetherAuthor()
    opened = post(relay, "/v1/subscriptions", {"filters": [{"authors": [author.pubkey]}]})
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{relay.http}/healthz")  # a page of the same origin, without a policy of its own
    page.evaluate(_LISTEN, f"{relay.http}/v1/stream?subscription_id={opened['subscription_id']}")

    def publish(content: str) -> None:
        answer = post(relay, "/v1/events", author.event(content).as_dict())
        assert answer["message"] == "accepted"

    def wait_for(number: int) -> list[Any]:
        page.wait_for_function(f"window.got.length >= {number}", timeout=25_000)
        got: list[Any] = page.evaluate("window.got")
        return got

    publish("0")
    publish("1")
    assert [content for _, content in wait_for(2)] == ["0", "1"]
    assert relay.stop() == 0
    relay.start()
    publish("2")
    publish("3")
    got = wait_for(4)
    assert [content for _, content in got] == ["0", "1", "2", "3"]
    assert [number for number, _ in got] == sorted({number for number, _ in got})
    context.close()
