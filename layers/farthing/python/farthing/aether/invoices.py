"""Invoice attachments: the content of a capability offer (kind 10002).

Only the shape of the Lightning invoice is checked, not its checksum or signature.
"""

import re
from dataclasses import dataclass
from typing import Final

import orjson

from farthing.aether.errors import ValidationFailed
from farthing.aether.numbers import u64

MAX_INVOICE: Final = 4096  # characters
MAX_MEMO: Final = 1024  # octets

_BECH32: Final = "023456789acdefghjklmnpqrstuvwxyz"
_CHECKSUM: Final = 6
# BOLT 11: network, amount with multiplier, separator, data.
_INVOICE = re.compile(
    rf"ln(?:bcrt|bc|tbs|tb)(?:[1-9][0-9]*[munp]?)?1[{_BECH32}]{{{_CHECKSUM},}}"
).fullmatch


@dataclass(frozen=True, slots=True)
class InvoiceAttachment:
    invoice: str
    memo: str | None = None
    amount_msat: int | None = None


def parse_invoice_attachment(content: bytes) -> InvoiceAttachment:
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError:
        raise ValidationFailed("invoice attachment: expected JSON") from None
    if type(value) is not dict:
        raise ValidationFailed("invoice attachment: expected an object")
    invoice, memo = value.get("invoice"), value.get("memo", "")
    if type(invoice) is not str or not is_invoice(invoice):
        raise ValidationFailed("invoice: expected the shape of a BOLT 11 invoice")
    if type(memo) is not str or len(memo.encode()) > MAX_MEMO:
        raise ValidationFailed(f"memo: expected text of at most {MAX_MEMO} octets")
    if "amount_msat" in value and u64(value["amount_msat"]) is None:
        raise ValidationFailed("amount_msat: expected an integer of 64 bits")
    return InvoiceAttachment(invoice, value.get("memo"), value.get("amount_msat"))


def is_invoice(text: str) -> bool:
    """Whether the text has the shape of an invoice. Bech32 is all lower case or all upper case."""
    if len(text) > MAX_INVOICE or not text.isascii() or text not in (text.lower(), text.upper()):
        return False
    return _INVOICE(text.lower()) is not None
