"""A client that does not read is cut off, and holds up nobody else."""

import pytest

from tests.e2e.authors import Author
from tests.e2e.client import Background
from tests.e2e.http import metrics
from tests.e2e.relay_process import RelayProcess

LARGE = "x" * 90_000


@pytest.fixture
def narrow(start_relay) -> RelayProcess:
    return start_relay(price_per_byte=0, requests_per_second=0, max_send_buffer=200_000)


def test_one_that_does_not_read_live_events(narrow: RelayProcess, connect, background: Background):
    slow, quick, publisher = connect(narrow), connect(narrow), connect(narrow)
    author = Author()
    for listener in (slow, quick):
        assert listener.request("live", {"authors": [author.pubkey]}) == []
    published = []
    while int(metrics(background, narrow)["farthing_clients_too_slow_total"]) == 0:
        published.append(author.event(f"{len(published)} {LARGE}"))
        assert publisher.publish(published[-1]) == (True, "")
        assert quick.wait_for("EVENT", "live")[2]["id"] == published[-1]["id"]
        assert len(published) < 500, "it is never cut off"

    assert slow.wait_for_close() in (1008, 1006)
    got = [frame[2]["id"] for frame in slow.inbox if frame[:2] == ["EVENT", "live"]]
    assert got == [event["id"] for event in published][: len(got)]
    publisher.store(last := author.event())
    assert quick.wait_for("EVENT", "live")[2] == last


def test_those_who_do_not_read_the_changes_feed(
    narrow: RelayProcess, connect, background: Background
):
    """They are served one after another: whoever reads must not wait long for those who do not."""
    deaf, quick, publisher = [connect(narrow) for _ in range(4)], connect(narrow), connect(narrow)
    author = Author()
    for listener in (*deaf, quick):
        listener.send("CHANGES", "feed", {"authors": [author.pubkey], "live": True})
    assert quick.wait_for("CHANGES", "feed", "EOSE")
    published = 0
    while int(metrics(background, narrow)["farthing_clients_too_slow_total"]) < len(deaf):
        event = author.event(f"{published} {LARGE}")
        assert publisher.publish(event) == (True, "")
        assert quick.wait_for("CHANGES", "feed", "EVENT")[4]["id"] == event["id"]
        published += 1
        assert published < 500, "they are never cut off"


def test_many_who_do_not_read_are_cut_off_for_what_waits_for_all_of_them(
    start_relay, connect, background: Background
):
    relay = start_relay(
        price_per_byte=0, requests_per_second=0, max_send_buffer=10**9, max_send_buffers=1_000_000
    )
    deaf, quick, publisher = [connect(relay) for _ in range(8)], connect(relay), connect(relay)
    author = Author()
    for listener in (*deaf, quick):
        assert listener.request("live", {"authors": [author.pubkey]}) == []
    published = 0
    while int(metrics(background, relay)["farthing_clients_too_slow_total"]) < len(deaf):
        event = author.event(f"{published} {LARGE}")
        assert publisher.publish(event) == (True, "")
        assert quick.wait_for("EVENT", "live")[2]["id"] == event["id"]
        published += 1
        assert published < 250, "they are never cut off"


def test_one_that_reads_stored_events_slowly_gets_them_all(narrow: RelayProcess, connect):
    """More than fits into the buffers: the relay waits for the client, and the client is served."""
    author = Author()
    events = [author.event(f"{number} {LARGE}") for number in range(150)]
    publisher = connect(narrow)
    for event in events:
        assert publisher.publish(event) == (True, "")
    slow = connect(narrow)
    slow.send("REQ", "stored", {"authors": [author.pubkey]})
    publisher.store(author.event(kind=2))  # others are served meanwhile
    got = slow.stored("stored")
    assert {event["id"] for event in got if event["kind"] == 1} == {e["id"] for e in events}
