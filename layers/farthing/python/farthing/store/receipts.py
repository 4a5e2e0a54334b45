"""Receipts: one for each packet that moved money, with the purpose of the payment.

A purpose is one case of a sum type. All readers of receipts match on it: audit, statements, the
report. To add a purpose, write its class here and add the class to `Purpose` and `_PURPOSES`.

A receipt's item is flat: the receipt's own fields, `purpose`, and the fields of that purpose.
"""

from typing import Any, NamedTuple

from farthing.store.table import Item

# Prefix of the reference of an event that came with a packet of amount 0.
FREE = "free#"


class Stored(NamedTuple):
    """An event was stored here, or handed to its subscribers if it is ephemeral."""

    event_id: str
    kind: int
    size: int
    event_expires: int | None = None  # when the event expires (NIP-40)
    space: str = "nostr"  # the event's format

    @property
    def mark(self) -> str:
        return self.event_id


class Forwarded(NamedTuple):
    """The packet went on to another connector, which fulfilled it."""

    next_hop: str
    outgoing: int  # the amount that the next hop received
    size: int
    digest: str = ""  # of destination, amount and data
    packet: str = ""  # distinguishes packets that are otherwise equal
    again: bool = False  # whether the receipt of an equal packet exists already

    @property
    def mark(self) -> str:
        return f"{self.digest}#{self.packet if self.again else ''}"


class PurseFilled(NamedTuple):
    """The amount went into a purse. The purse has a movement for it (see `store.purses`)."""

    key: str  # the purse's key
    size: int

    @property
    def mark(self) -> str:
        return f"purse#{self.key}"


class Subscribed(NamedTuple):
    """A message about a paid subscription came with money. The receipt's price is what the
    subscription or its time cost; the rest is the subscription's credit."""

    owner: str
    subscription_id: str
    size: int

    @property
    def mark(self) -> str:
        return "subscription"


Purpose = Stored | Forwarded | PurseFilled | Subscribed

_PURPOSES: dict[str, Any] = {
    "stored": Stored,
    "forwarded": Forwarded,
    "purse filled": PurseFilled,
    "subscribed": Subscribed,
}
_NAMES = {purpose: name for name, purpose in _PURPOSES.items()}


class Receipt(NamedTuple):
    """The record of a fulfilled packet: its amount and purpose."""

    peer: str
    condition: str
    fulfillment: str
    scheme: str  # the scheme of the condition; empty if only payer and receiver know it
    amount: int  # the received amount
    price: int  # our price; for a forwarded packet, our fee
    time: int
    purpose: Purpose

    @property
    def reference(self) -> str:
        """The reference in an event that this receipt paid for. A packet of amount 0 leaves no
        receipt, and the reference shows that."""
        return self._packet if self.amount else FREE + self._packet

    def repeats(self, earlier: "Receipt | None") -> bool:
        """Whether this packet repeats that of an earlier receipt under the same key. With another
        amount it is another payment."""
        return earlier is not None and earlier.amount == self.amount

    @property
    def _packet(self) -> str:
        return f"{self.peer}#{self.condition}"

    @property
    def key(self) -> tuple[str, str]:
        """The receipt's key. The mark distinguishes several purchases under one condition of one
        peer."""
        return receipts_of(self.peer), f"{self.condition}#{self.purpose.mark}"

    def item(self) -> dict[str, Any]:
        fields = self._asdict()
        fields.update(self.purpose._asdict())
        fields["purpose"] = _NAMES[type(self.purpose)]
        if fields.get("space") == Stored._field_defaults["space"]:
            del fields["space"]  # nearly all receipts have the default
        return fields


def receipts_of(peer: str) -> str:
    """The partition of a peer's receipts."""
    return f"receipt#{peer}"


def receipt_of(item: Item) -> Receipt:
    fields = dict(item)
    name = fields.pop("purpose", "")
    # Receipts of earlier versions do not name their purpose.
    kind = _PURPOSES[name or ("forwarded" if fields.get("next_hop") else "stored")]
    fields["purpose"] = kind(**{each: fields[each] for each in kind._fields if each in fields})
    return Receipt(**{each: fields[each] for each in Receipt._fields})
