"""A sealed set of (timestamp, id) items, sorted once, that fingerprints any range in constant time.

The items are one sequence of 40-byte records (big-endian timestamp, id). Records sort bytewise, a
million take 40 MB, and the sequence itself serves as the snapshot.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import partial
from hashlib import sha256
from itertools import accumulate, chain, islice, repeat
from operator import lt
from typing import Literal, Self

from farthing.nostr.negentropy.wire import (
    FINGERPRINT_SIZE,
    ID_SIZE,
    INFINITY,
    RECORD_SIZE,
    Bound,
    encode_varint,
)

# To compute a fingerprint, the ids of at most two partial blocks are added to two stored sums.
BLOCK = 32
_BATCH = 1024
_ITEM = "Q32s"
_RECORD = "40s"
_ID = "8x32s"
_U256 = 2**256 - 1
_LITTLE: Iterator[Literal["little"]] = repeat("little")


class InvalidItems(ValueError):
    """Items that cannot be sealed: a bad timestamp or id, a repeated item, or broken order."""


class SealedVector:
    __slots__ = ("_records", "_size", "_sums")

    def __init__(self, records: bytes) -> None:
        """Takes records in ascending order; see `seal` for items in any order."""
        if len(records) % RECORD_SIZE:
            raise InvalidItems("records are not whole")
        if not _ascending(records):
            raise InvalidItems("items repeat or are out of order")
        if records[-RECORD_SIZE:] >= INFINITY:
            raise InvalidItems("timestamp is not below infinity")
        self._records = records
        self._size = len(records) // RECORD_SIZE
        # Sums may grow beyond 256 bits: reducing each would cost more than the few extra bits.
        self._sums = list(accumulate(map(_sum, _blocks(_ID, records)), initial=0))

    @classmethod
    def seal(cls, items: Iterable[tuple[int, bytes]]) -> Self:
        """Takes (timestamp, id) items in any order; ascending or newest first is fastest."""
        return cls.seal_records(_pack(items))

    @classmethod
    def seal_records(cls, records: bytearray) -> Self:
        """The vector of packed items: each has 8 bytes of big-endian timestamp, and the id."""
        if not _ascending(records):
            _sort(records)
        return cls(bytes(records))

    @classmethod
    def from_bytes(cls, snapshot: bytes) -> Self:
        return cls(snapshot)

    def to_bytes(self) -> bytes:
        """A snapshot with which another process can continue the session."""
        return self._records

    def __len__(self) -> int:
        return self._size

    def record(self, index: int) -> bytes:
        return self._records[index * RECORD_SIZE : (index + 1) * RECORD_SIZE]

    def ids(self, lower: int, upper: int) -> bytes:
        """The ids of a range, concatenated."""
        return b"".join(chain.from_iterable(_blocks(_ID, self._slice(lower, upper))))

    def lower_bound(self, bound: Bound, start: int = 0) -> int:
        """The index of the first item from `start` on that is not below the bound."""
        # If a peer sends very many ranges, most of them are empty.
        if start == self._size or bound <= self.record(start):
            return start
        return bisect_left(range(self._size), bound, start, key=self.record)

    def fingerprint(self, lower: int, upper: int) -> bytes:
        total = self._sum_below(upper) - self._sum_below(lower) & _U256
        counted = total.to_bytes(ID_SIZE, "little") + encode_varint(upper - lower)
        return sha256(counted).digest()[:FINGERPRINT_SIZE]

    def _sum_below(self, index: int) -> int:
        block, rest = divmod(index, BLOCK)
        part = struct.unpack(_ID * rest, self._slice(index - rest, index))
        return self._sums[block] + _sum(part)

    def _slice(self, lower: int, upper: int) -> bytes:
        return self._records[lower * RECORD_SIZE : upper * RECORD_SIZE]


def _blocks(field: str, records: bytes | bytearray) -> Iterator[tuple[bytes, ...]]:
    """One field of every record, unpacked block by block, which is far faster than one by one."""
    count, rest = divmod(len(records) // RECORD_SIZE, BLOCK)
    whole = count * BLOCK * RECORD_SIZE
    view = memoryview(records)
    if count:
        yield from struct.iter_unpack(field * BLOCK, view[:whole])
    if rest:
        yield struct.unpack(field * rest, view[whole:])


def _sum(ids: tuple[bytes, ...]) -> int:
    return sum(map(int.from_bytes, ids, _LITTLE))


def _ascending(records: bytes | bytearray) -> bool:
    last = b""
    for block in _blocks(_RECORD, records):
        if not (last < block[0] and all(map(lt, block, block[1:]))):
            return False
        last = block[-1]
    return True


def _pack(items: Iterable[tuple[int, bytes]]) -> bytearray:
    take = partial(islice, iter(items), _BATCH)
    packed = bytearray()
    for batch in iter(lambda: list(take()), []):
        packed += _pack_batch(batch)
    return packed


def _pack_batch(items: list[tuple[int, bytes]]) -> bytes:
    # `32s` would silently cut or pad an id of another length.
    if any(len(event_id) != ID_SIZE for _, event_id in items):
        raise InvalidItems("id is not 32 bytes")
    try:
        return struct.pack(">" + _ITEM * len(items), *chain.from_iterable(items))
    except struct.error as error:
        raise InvalidItems(str(error)) from error


def _sort(packed: bytearray) -> None:
    records = list(chain.from_iterable(_blocks(_RECORD, packed)))
    # Items that come newest first are then sorted in one pass, in whatever order ids of one
    # timestamp are.
    if records[0] > records[-1]:
        records.reverse()
    records.sort()
    # Joining a million records at once would need another 120 MB.
    for start in range(0, len(records), _BATCH):
        batch = b"".join(records[start : start + _BATCH])
        packed[start * RECORD_SIZE : start * RECORD_SIZE + len(batch)] = batch
