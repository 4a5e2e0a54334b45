"""Receipts: one for each packet that moved money, each with the purpose that the money had.

A purpose is one case of a sum type. Whoever reads receipts matches on it: audit, statements, the
report. To add a purpose, write its class here and add the class to `Purpose` and `_PURPOSES`.

A receipt's item is flat: the receipt's own fields, `purpose`, and the fields of that purpose.
"""

from typing import Any, NamedTuple

from farthing.store.table import Item

# Begins the reference of what came with a packet of amount 0.
FREE = "free#"


class Stored(NamedTuple):
    """An event was stored here, or handed to its subscribers if it is ephemeral."""

    event_id: str
    kind: int
    size: int
    event_expires: int | None = None  # when the event leaves by itself (NIP-40)
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
    packet: str = ""  # tells packets apart that are equal in everything else
    again: bool = False  # a receipt of such a packet stands already

    @property
    def mark(self) -> str:
        return f"{self.digest}#{self.packet if self.again else ''}"


class PurseFilled(NamedTuple):
    """The amount went into a purse. The purse has a movement for it (see `store.purses`)."""

    key: str  # whose purse
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
    """What a fulfilled packet paid, and what for."""

    peer: str
    condition: str
    fulfillment: str
    scheme: str  # how the condition was made; empty where only others know
    amount: int  # what arrived
    price: int  # what we asked for; of a forwarded packet, our fee
    time: int
    purpose: Purpose

    @property
    def reference(self) -> str:
        """What an event that this receipt paid for carries. A packet of amount 0 leaves no receipt,
        and what it brought says so."""
        return self._packet if self.amount else FREE + self._packet

    def has_paid(self, reference: str | None) -> bool:
        """Whether something with this reference came with this packet, at whatever amount."""
        return reference is not None and reference.removeprefix(FREE) == self._packet

    @property
    def _packet(self) -> str:
        return f"{self.peer}#{self.condition}"

    @property
    def key(self) -> tuple[str, str]:
        """The mark tells apart what one condition of one peer has paid for."""
        return receipts_of(self.peer), f"{self.condition}#{self.purpose.mark}"

    def item(self) -> dict[str, Any]:
        fields = self._asdict()
        fields.update(self.purpose._asdict())
        fields["purpose"] = _NAMES[type(self.purpose)]
        if fields.get("space") == Stored._field_defaults["space"]:
            del fields["space"]  # nearly all are such
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
