"""Metrics on one machine: well-formed, in base units, and for the operator only."""

import re
from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from farthing.ilp.packet import Code, known_code
from farthing.ports.meter import Metric
from infra.local.server.meter import LocalMeter
from tests.e2e.authors import Author
from tests.e2e.client import Background, RawClient
from tests.e2e.conftest import OPEN
from tests.e2e.http import metrics, request
from tests.e2e.relay_process import RelayProcess

TOKEN = "a-token-of-the-monitoring-0123456789"


def families(text: str) -> dict[str, tuple[str, str, list[str]]]:
    """Name: type, help and samples."""
    return {
        family.name: (family.type, family.documentation, [each.name for each in family.samples])
        for family in text_string_to_metric_families(text)
    }


def test_every_metric_says_what_it_is_and_has_its_type() -> None:
    found = families(LocalMeter().text().decode())
    assert len(found) == len(Metric)
    for name, (kind, about, samples) in found.items():
        assert re.fullmatch(r"farthing_[a-z_]+", name)
        assert kind in ("counter", "histogram")
        assert about
        assert samples
        assert "milli" not in name
    assert all(metric.about for metric in Metric)


def test_packets_are_timed_in_seconds() -> None:
    meter = LocalMeter()
    meter.count(Metric.PACKET_MILLISECONDS, 250)
    text = meter.text().decode()
    assert "farthing_packet_seconds_sum 0.25\n" in text
    assert 'farthing_packet_seconds_bucket{le="0.25"} 1.0\n' in text


def test_rejected_packets_are_counted_by_codes_that_exist() -> None:
    """A next hop may answer with any code: no series is made for it, and nothing is broken."""
    meter = LocalMeter()
    before = len(meter.text().splitlines())
    meter.count(Metric.PACKETS_REJECTED, code="F04")
    for code in ('X"}\n', "Z99", "", *(f"A{number}" for number in range(100))):
        meter.count(Metric.PACKETS_REJECTED, code=code)
    text = meter.text().decode()
    assert len(text.splitlines()) == before
    assert 'farthing_packets_rejected_total{code="F04"} 1.0\n' in text
    assert 'farthing_packets_rejected_total{code="Other"} 103.0\n' in text
    assert "\nfarthing_packets_rejected_total " not in text  # no series without a code beside them
    assert all(known_code(code) == code for code in Code)


def test_gauges_show_what_there_is(
    start_relay: Callable[..., RelayProcess], background: Background, author: Author
) -> None:
    relay = start_relay(**OPEN)
    client = RawClient(background, relay.url)
    client.store(author.event())
    found = metrics(background, relay)
    assert found["farthing_connections"] >= 1
    assert found["farthing_events_stored_total"] == 1
    assert found["farthing_events"] >= 0
    parts = {'{part="posted"}', '{part="pending"}', '{part="payable"}'}
    assert {found[f"farthing_balance{part}"] for part in parts} == {0}
    client.close()


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-For": "127.0.0.1"},
        {"Forwarded": "for=127.0.0.1"},
        {"Via": "1.1 caddy"},
        {"X-Real-IP": "1.2.3.4"},
        {"Origin": "https://page.example"},  # a page in the operator's own browser
        {"Host": "rebound.example:7777"},  # whose name leads to this machine
        {"X-Forwarded-For": "1.2.3.4", "Authorization": "Bearer wrong"},
    ],
)
def test_strangers_do_not_read_the_revenue_by_way_of_this_machine(
    background: Background, relay: RelayProcess, headers: dict[str, str]
) -> None:
    answer = request(background, "GET", f"{relay.http}/metrics", headers)
    assert answer.status == 401
    assert "revenue" not in answer.body


def test_a_token_opens_them_from_anywhere(
    start_relay: Callable[..., RelayProcess], background: Background
) -> None:
    relay = start_relay(**OPEN, metrics_token=TOKEN)
    shown = {"X-Forwarded-For": "1.2.3.4", "Authorization": f"Bearer {TOKEN}"}
    answer = request(background, "GET", f"{relay.http}/metrics", shown)
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    assert "farthing_revenue_total" in answer.body
    assert "Access-Control-Allow-Origin" not in answer.headers
