"""Payers of a relay in a process of its own: its price, its tokens, and packets by real HTTP."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import urllib3

from farthing.aws.outbound import HttpOutbound
from farthing.connector.client import (
    PreparedPayment,
    RelayTerms,
    prepare_payment,
    send_payment,
    terms_from_information,
    utc_now,
)
from farthing.ilp.packet import Fulfill, Prepare, Reject, decode_reply, encode, to_milliseconds
from farthing.nostr.events import Event, parse_event
from farthing.ports.hosts import ANYWHERE
from farthing.store.sqlite import SqliteEngine
from farthing.store.sqlite_packing import unpack_partition
from farthing.store.table import Table
from tests.e2e.authors import Author
from tests.e2e.relay_process import ROOT, RelayProcess, environment

PER_BYTE = 10
OCTETS = "application/octet-stream"


def free_port() -> int:
    """Paid relays tell where to pay, so that they have to know their port beforehand."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def token_of(relay: RelayProcess) -> str:
    return (relay.data / "peer-token").read_text().strip()


def http(
    method: str, url: str, body: bytes | None = None, **headers: str
) -> urllib3.BaseHTTPResponse:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return urllib3.request(method, url, body=body, headers=named, retries=False, timeout=20)


def information(relay: RelayProcess) -> dict[str, Any]:
    answer = http("GET", relay.http, Accept="application/nostr+json")
    document: dict[str, Any] = answer.json()
    return document


def terms_of(relay: RelayProcess) -> RelayTerms:
    return terms_from_information(information(relay))


def payment_for(
    relay: RelayProcess, author: Author, event: Mapping[str, Any], **changes: Any
) -> PreparedPayment:
    """The author's own payment at the price that the relay states; `changes` makes it another."""
    payment = prepare_payment(
        as_event(event), bytes.fromhex(author.secret), terms_of(relay), utc_now()
    )
    return replace(payment, prepare=replace(payment.prepare, **changes))


def as_event(event: Mapping[str, Any]) -> Event:
    return parse_event(dict(event))


def pay(relay: RelayProcess, payment: PreparedPayment, token: str = "") -> Fulfill | Reject:
    endpoint = terms_of(relay).endpoint
    return send_payment(HttpOutbound(ANYWHERE), endpoint, token or token_of(relay), payment)


def post_packet(relay: RelayProcess, prepare: Prepare, **headers: str) -> urllib3.BaseHTTPResponse:
    given = {
        "Content_Type": OCTETS,
        "Authorization": f"Bearer {token_of(relay)}",
        **headers,
    }
    return http("POST", f"{relay.http}/ilp", encode(prepare), **given)


def reply_of(response: urllib3.BaseHTTPResponse) -> Fulfill | Reject:
    assert response.status == 200, response.data
    return decode_reply(response.data)


def quote_for(relay: RelayProcess, event: Mapping[str, Any]) -> dict[str, Any]:
    body = orjson.dumps({"event": event})
    quote: dict[str, Any] = http("POST", f"{relay.http}/v1/quotes", body).json()
    return quote


def in_ten_minutes() -> Any:
    return to_milliseconds(utc_now() + timedelta(minutes=10))


def books(relay: RelayProcess) -> dict[tuple[str, str, str], bytes]:
    """Events and the ledger, item by item; what follows behind them is not theirs to say."""
    engine = SqliteEngine(relay.data)
    try:
        return {
            (str(table), unpack_partition(table, pk), sk): item
            for table in (Table.EVENTS, Table.LEDGER)
            for pk, sk, item in engine._file.reader.execute(f"SELECT pk, sk, item FROM {table}")
        }
    finally:
        engine.close()


def command(
    relay: RelayProcess, *arguments: str, timeout: float = 60, **options: Any
) -> "subprocess.CompletedProcess[str]":
    """`farthing ...` beside a relay, with its settings."""
    return subprocess.run(
        [sys.executable, "-m", "infra.local", *arguments],
        cwd=ROOT,
        env=command_environment(relay),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        **options,
    )


def command_environment(relay: RelayProcess) -> dict[str, str]:
    settings = {**relay.settings, "port": relay.port}
    return {**environment(Path(relay.data), settings), "COLUMNS": os.environ.get("COLUMNS", "100")}


def table_of(output: str) -> dict[str, str]:
    """Rows of a name, spaces, and a value."""
    rows = (line.split(None, 1) for line in output.splitlines() if line.strip())
    return {row[0]: row[1] if len(row) > 1 else "" for row in rows}
