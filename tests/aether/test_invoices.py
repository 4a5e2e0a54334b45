"""Invoice attachments: the shape of what a kind 10002 offers."""

from typing import Any

import orjson
import pytest

from farthing.aether.errors import ValidationFailed
from farthing.aether.invoices import InvoiceAttachment, is_invoice, parse_invoice_attachment
from tests.aether.known import BY_ID, VECTORS

DATA = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
EXPECTED = {each["event"]["event_id"]: each["expect"] for each in VECTORS["events"]}


def attachment(**fields: Any) -> bytes:
    return orjson.dumps({"invoice": f"lnbc25u1{DATA}", **fields})


@pytest.mark.parametrize("event_id", VECTORS["invoices"])
def test_offers_of_the_vectors_are_judged_as_written(event_id: str) -> None:
    content = BY_ID[event_id]["content"].encode()

    if EXPECTED[event_id] == "stored":
        found = parse_invoice_attachment(content)
        assert {"invoice": found.invoice} == {"invoice": orjson.loads(content)["invoice"]}
    else:
        with pytest.raises(ValidationFailed):
            parse_invoice_attachment(content)


def test_an_attachment_says_what_it_carries() -> None:
    found = parse_invoice_attachment(attachment(memo="a farthing", amount_msat=2**64 - 1, more=[]))

    assert found == InvoiceAttachment(f"lnbc25u1{DATA}", "a farthing", 2**64 - 1)
    assert parse_invoice_attachment(attachment()) == InvoiceAttachment(f"lnbc25u1{DATA}")


@pytest.mark.parametrize(
    "invoice",
    [
        f"lnbc1{DATA}",
        f"lntb20m1{DATA}",
        f"lntbs1u1{DATA}",
        f"lnbcrt2500000000p1{DATA}",
        f"lnbc111{DATA}",
        f"LNBC25U1{DATA.upper()}",
        "lnbc1" + "q" * 4091,
    ],
)
def test_text_in_the_shape_of_an_invoice_is_one(invoice: str) -> None:
    assert is_invoice(invoice)


@pytest.mark.parametrize(
    "invoice",
    [
        "",
        "lnbc",
        "lnbc1",
        f"bc1{DATA}",
        f"lnxx1{DATA}",
        f"lnbc25x1{DATA}",
        f"lnbc0u1{DATA}",
        f"lnbcu1{DATA}",
        f"lnbc25u1{DATA}b",
        f"lnbc25u1{DATA}\n",
        f" lnbc25u1{DATA}",
        f"lnbc25u1{DATA.upper()}",
        f"Lnbc25u1{DATA}",
        f"LNBC25U1{DATA.upper()}\u212a",  # lower() of the Kelvin sign is a k
        "lnbc1" + "q" * 4092,
    ],
)
def test_text_in_another_shape_is_no_invoice(invoice: str) -> None:
    assert not is_invoice(invoice)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"null",
        b"\xff",
        b"{",
        attachment(invoice=None),
        attachment(invoice=5),
        attachment(memo=None),
        attachment(memo=5),
        attachment(memo="ž" * 513),
        attachment(amount_msat=-1),
        attachment(amount_msat=True),
        attachment(amount_msat=1.0),
        attachment(amount_msat=None),
        b'{"invoice":"lnbc1qqqqqq","amount_msat":18446744073709551616}',
    ],
)
def test_other_content_is_refused(content: bytes) -> None:
    with pytest.raises(ValidationFailed):
        parse_invoice_attachment(content)


def test_a_memo_has_at_most_1024_octets() -> None:
    assert parse_invoice_attachment(attachment(memo="ž" * 512)).memo == "ž" * 512
