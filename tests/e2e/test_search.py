"""NIP-50 on one machine: search by words, exact under deletion, advertised only where it is on."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.authors import Author
from tests.e2e.client import Background, RawClient, connected
from tests.e2e.paying import free_port, information
from tests.e2e.relay_process import RelayProcess
from tests.e2e.stores import import_events


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayProcess]:
    data = tmp_path_factory.mktemp("search") / "data"
    relay = RelayProcess(data, port=free_port(), price_per_byte=0).start()
    yield relay
    assert relay.stop() == 0
    relay.check_log()


def found(client: RawClient, number: int, **filter: Any) -> list[str]:
    """Contents of the hits, once the index has as many."""
    until = time.monotonic() + 10
    while True:
        contents = [event["content"] for event in client.ask(filter)]
        if len(contents) == number or time.monotonic() > until:
            return contents


def test_all_words_are_found_in_any_order_and_case(client: RawClient) -> None:
    author = Author()
    client.store(
        author.event("The quick brown fox"), author.event("a BROWN bear"), author.event("quickly")
    )

    assert set(found(client, 2, search="brown")) == {"The quick brown fox", "a BROWN bear"}
    assert found(client, 1, search="fox QUICK") == ["The quick brown fox"]
    assert found(client, 0, search="unicorn") == []


def test_other_fields_of_the_filter_count_too(client: RawClient) -> None:
    one, other = Author(), Author()
    client.store(one.event("zebra one"), other.event("zebra two"), one.event("zebra", kind=30023))

    assert found(client, 1, search="zebra", authors=[one.pubkey], kinds=[1]) == ["zebra one"]
    assert len(found(client, 1, search="zebra", limit=1)) == 1


def test_what_is_deleted_is_not_found(client: RawClient) -> None:
    author = Author()
    event = author.event("ephemeron here")
    client.store(event)
    assert found(client, 1, search="ephemeron") == ["ephemeron here"]

    client.store(author.event("", kind=5, tags=[["e", event["id"]]]))

    assert found(client, 0, search="ephemeron") == []


@pytest.mark.parametrize("text", ['"', "a OR b*", "NEAR(x)", "^", "-", "content:x", "(", "'; --"])
def test_no_text_is_an_operator_or_an_error(client: RawClient, text: str) -> None:
    assert client.ask({"search": text, "limit": 5}) == []


@pytest.mark.parametrize("wrong", ["", 5, None, ["x"], "x" * 257])
def test_what_is_no_search_is_refused(client: RawClient, wrong: Any) -> None:
    client.send("REQ", "wrong", {"search": wrong})
    assert client.wait_for("CLOSED", "wrong")[2].startswith("invalid:")


def test_a_live_search_gets_new_events(client: RawClient) -> None:
    client.send("REQ", "live", {"search": "kestrel", "limit": 0})
    client.wait_for("EOSE", "live")
    author = Author()
    client.publish(author.event("a sparrow"))
    client.publish(author.event("a Kestrel"))

    assert client.wait_for("EVENT", "live")[2]["content"] == "a Kestrel"


@pytest.mark.parametrize(
    ("search", "content", "is_hit"),
    [
        ("gannet, tern!", "Tern and gannet.", True),
        ("cafe_crème", "a CAFÉ with crème", True),
        ("cafe_crème", "a café", False),
        ("puffin language:en", "one puffin", True),
        ("puff", "one puffin", False),
        ("language:en", "one auk", False),
        ("Größe", "die GRÖSSE und die größe", True),
    ],
)
def test_a_live_search_gets_what_a_later_one_finds(
    client: RawClient, search: str, content: str, is_hit: bool
) -> None:
    author = Author()
    search_filter = {"search": search, "authors": [author.pubkey], "limit": 0}
    client.send("REQ", "live", search_filter, {"kinds": [7], "authors": [author.pubkey]})
    client.wait_for("EOSE", "live")
    client.store(author.event(content), author.event("", kind=7))

    hits = [content] if is_hit else []
    assert [client.wait_for("EVENT", "live")[2]["content"] for _ in [*hits, ""]] == [*hits, ""]
    # The index is as far as a word that was written later.
    client.store(author.event("lapwing"))
    assert found(client, 1, search="lapwing", authors=[author.pubkey]) == ["lapwing"]
    assert found(client, len(hits), search=search, authors=[author.pubkey]) == hits


def test_the_information_document_lists_search(relay: RelayProcess) -> None:
    assert 50 in information(relay)["supported_nips"]


def test_an_older_data_folder_is_indexed_at_the_start(
    tmp_path: Path, background: Background
) -> None:
    import_events(tmp_path / "data", [Author().event("from before")])
    relay = RelayProcess(tmp_path / "data", port=free_port(), price_per_byte=0).start()
    try:
        with connected(background, relay.url) as client:
            assert found(client, 1, search="before") == ["from before"]
    finally:
        relay.stop()


def test_a_folder_with_more_events_than_a_request_may_read_is_indexed_whole(
    tmp_path: Path, background: Background
) -> None:
    author = Author()
    events = [author.event(f"lorem {number}", created_at=number) for number in range(1, 1501)]
    import_events(tmp_path / "data", events)
    relay = RelayProcess(tmp_path / "data", port=free_port(), price_per_byte=0, max_scan=700)
    relay.start()
    try:
        with connected(background, relay.url) as client:
            assert found(client, 1, search="lorem 1") == ["lorem 1"]
    finally:
        relay.stop()
    assert "catch up" not in relay.log


def test_where_it_is_off_it_is_refused_and_not_advertised(
    tmp_path: Path, background: Background
) -> None:
    relay = RelayProcess(tmp_path / "data", port=free_port(), search=0).start()
    try:
        assert 50 not in information(relay)["supported_nips"]
        with connected(background, relay.url) as client:
            client.send("REQ", "s", {"search": "x"})
            assert client.wait_for("CLOSED", "s")[2].startswith("invalid:")
    finally:
        relay.stop()
