"""Answers that other processes read: the interface to such processes, and the form of their
answers.

An event comes as the octets that go out to clients, together with its main fields. So the process
that asked does almost no work for each event.
"""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple, Protocol

from farthing.store.events import EventRecord
from farthing.store.spaces import E
from farthing.store.table import Item

# Whether the answer may be cached, and the number of events. Then the heads of all events, their
# payment references, and their octets.
_ANSWER: Final = Struct(">?I")
# Id, author, kind, created_at, written, expires, length of the reference, length of the event.
_HEAD: Final = Struct(">32s32sHQQqHI")
_NEVER: Final = -1
_NO_REFERENCE: Final = 2**16 - 1

_NO_ITEM: Final[Item] = {}

_Head = tuple[bytes, bytes, int, int, int, int, int, int]


class ReaderProcesses(Protocol):
    """Processes that read the data that this process stores."""

    def answer(self, filters: str, now: int, most: int) -> bytes | None:
        """The events that match any of these Nostr filters in this second, in the form of
        `pack_answer`. The filters are a text as `subscriptions.text_of` writes it. The answer
        includes everything that was committed before the call.

        None if the caller must read itself: no process is free or alive, more than `most` index
        entries would be read, or an event is private.
        """
        ...


class PassedRecord(EventRecord[E]):
    """An event that another process has read."""

    __slots__ = ("_head", "_reference")

    def __init__(
        self, head: _Head, reference: str | None, octets: bytes, parse: Callable[[str], E]
    ) -> None:
        super().__init__(head[0].hex(), _NO_ITEM, parse)
        self._head = head
        self._reference = reference
        self._octets = octets

    @property
    def pubkey(self) -> str:
        return self._head[1].hex()

    @property
    def kind(self) -> int:
        return self._head[2]

    @property
    def created_at(self) -> int:
        return self._head[3]

    @property
    def written(self) -> int:
        return self._head[4]

    @property
    def expires(self) -> int | None:
        expires = self._head[5]
        return None if expires == _NEVER else expires

    @property
    def payment(self) -> str | None:
        return self._reference

    @property
    def json(self) -> str:
        return self.octets.decode()

    @property
    def size(self) -> int:
        return self._head[7]


class Answer(NamedTuple):
    records: "list[PassedRecord[Any]]"
    lasts: bool  # whether it stays valid until one of its lists or events changes


class PassedEvent(NamedTuple):
    """An event on its way to another process."""

    id: bytes
    author: bytes
    kind: int
    created_at: int
    written: int
    expires: int | None
    payment: str | None
    octets: bytes


def passed(record: EventRecord[Any]) -> PassedEvent:
    return PassedEvent(
        bytes.fromhex(record.id), bytes.fromhex(record.pubkey), record.kind, record.created_at,
        record.written, record.expires, record.payment, record.octets,
    )  # fmt: skip


def pack_answer(events: Sequence[PassedEvent], *, lasts: bool) -> bytes:
    heads, references = [], []
    for *fields, expires, payment, octets in events:
        reference = b"" if payment is None else payment.encode()
        heads.append(
            _HEAD.pack(
                *fields,
                _NEVER if expires is None else expires,
                _NO_REFERENCE if payment is None else len(reference),
                len(octets),
            )
        )
        references.append(reference)
    texts = [event.octets for event in events]
    return b"".join([_ANSWER.pack(lasts, len(events)), *heads, *references, *texts])


def unpack_answer(packed: bytes, parse: Callable[[str], E]) -> Answer:
    lasts, number = _ANSWER.unpack_from(packed)
    heads_end = _ANSWER.size + number * _HEAD.size
    heads: list[_Head] = list(_HEAD.iter_unpack(packed[_ANSWER.size : heads_end]))
    references = _references(packed, heads_end, heads)
    at = heads_end + sum(head[6] for head in heads if head[6] != _NO_REFERENCE)
    records = []
    for head, reference in zip(heads, references, strict=True):
        end = at + head[7]
        records.append(PassedRecord(head, reference, packed[at:end], parse))
        at = end
    return Answer(records, lasts)


def _references(packed: bytes, at: int, heads: Sequence[_Head]) -> list[str | None]:
    found: list[str | None] = []
    for head in heads:
        if head[6] == _NO_REFERENCE:
            found.append(None)
        else:
            found.append(packed[at : at + head[6]].decode())
            at += head[6]
    return found
