"""The two sides of a negentropy session: the initiator learns the differences, the responder
answers.

Between messages, each side keeps only its sealed vector. Splitting, skipping and cutting follow the
reference implementation, so messages are the same byte for byte.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from farthing.nostr.negentropy.vector import SealedVector
from farthing.nostr.negentropy.wire import (
    ID_SIZE,
    INFINITY,
    START,
    VERSION,
    Bound,
    InvalidNegentropy,
    Mode,
    Range,
    decode_ranges,
    decode_version,
    encode_ranges,
    minimal_bound,
)

BUCKETS = 16
ID_LIST_BELOW = 2 * BUCKETS
MIN_FRAME_LIMIT = 4096
# Octets that stay free in a full message: for the bounds of a cut id list, and the fingerprint of
# the rest.
FRAME_RESERVE = 200

_EMPTY = SealedVector(b"").fingerprint(0, 0)


class Reconciled(NamedTuple):
    """The ids that one message has shown to the initiator, and the initiator's next message. No
    message means that it is done.

    With a frame limit, an id can appear in several messages. The result is the union of all.
    """

    message: bytes | None
    have: list[bytes]
    need: list[bytes]


@dataclass(frozen=True, slots=True)
class _Side:
    items: SealedVector
    frame_limit: int = 0

    def __post_init__(self) -> None:
        if self.frame_limit and self.frame_limit < MIN_FRAME_LIMIT:
            raise ValueError(f"frame limit is neither 0 nor at least {MIN_FRAME_LIMIT}")


class Responder(_Side):
    __slots__ = ()

    def reconcile(self, message: bytes) -> bytes:
        if decode_version(message) != VERSION:
            return bytes((VERSION,))
        return _Answer(self.items, self.frame_limit).to(message)


class Initiator(_Side):
    __slots__ = ()

    def initiate(self) -> bytes:
        ranges = _split(self.items, 0, len(self.items), INFINITY)
        return bytes((VERSION,)) + encode_ranges(ranges, START)

    def reconcile(self, message: bytes) -> Reconciled:
        if decode_version(message) != VERSION:
            raise InvalidNegentropy(f"responder speaks protocol version {message[0] & 0x0F}")
        answer = _Comparison(self.items, self.frame_limit)
        reply = answer.to(message)
        return Reconciled(reply if len(reply) > 1 else None, answer.have, answer.need)


class _Answer:
    """The responder's answer to one message, written range by range."""

    def __init__(self, items: SealedVector, frame_limit: int) -> None:
        self._items = items
        self._full = frame_limit - FRAME_RESERVE if frame_limit else sys.maxsize
        self._written = bytearray((VERSION,))
        self._bound = START
        self._skipped: list[Range] = []

    def to(self, message: bytes) -> bytes:
        ranges = decode_ranges(message)
        lower = 0
        for asked in ranges:
            upper = self._items.lower_bound(asked.upper, lower)
            rest = self._answer(asked, lower, upper)
            if rest is not None:
                self._write(encode_ranges([self._rest(rest)], self._bound), INFINITY)
                break
            lower = upper
        # Ranges after the cut get no answer, but are checked too: an invalid message is refused as
        # a whole.
        for _ in ranges:
            pass
        return bytes(self._written)

    def _answer(self, asked: Range, lower: int, upper: int) -> int | None:
        """Answer one range. If the message is full, return the bound at which the rest begins."""
        match asked.mode:
            case Mode.SKIP:
                self._skip(asked.upper)
                return None
            case Mode.FINGERPRINT:
                return self._compare(asked, lower, upper)
            case Mode.ID_LIST:
                return self._list(asked, lower, upper)

    def _compare(self, asked: Range, lower: int, upper: int) -> int | None:
        if asked.payload == self._items.fingerprint(lower, upper):
            self._skip(asked.upper)
            return None
        split = self._encode(*_split(self._items, lower, upper, asked.upper))
        if self._is_full(len(split)):
            # The reference implementation leaves the current range out of the fingerprint of the
            # rest. If the peer has items in this range, the fingerprints still differ. If the peer
            # has none, the fingerprints could be equal, and our items in this range would never be
            # sent. So in this case the fingerprint includes the range.
            return lower if asked.payload == _EMPTY else upper
        self._write(split, asked.upper)
        return None

    def _list(self, asked: Range, lower: int, upper: int) -> int | None:
        """List our ids, as many as fit. The peer finds out which of them it lacks."""
        bound = asked.upper
        fitting = (self._full - len(self._written)) // ID_SIZE + 1
        if upper - lower > fitting:
            upper = lower + fitting
            bound = self._items.record(upper)
        self._write(self._encode(Range(bound, Mode.ID_LIST, self._items.ids(lower, upper))), bound)
        return upper if self._is_full() else None

    def _rest(self, lower: int) -> Range:
        fingerprint = self._items.fingerprint(lower, len(self._items))
        return Range(INFINITY, Mode.FINGERPRINT, fingerprint)

    def _skip(self, upper: Bound) -> None:
        self._skipped = [Range(upper, Mode.SKIP)]

    def _encode(self, *ranges: Range) -> bytes:
        return encode_ranges([*self._skipped, *ranges], self._bound)

    def _is_full(self, more: int = 0) -> bool:
        return len(self._written) + more > self._full

    def _write(self, encoded: bytes, bound: Bound) -> None:
        self._written += encoded
        self._bound = bound
        self._skipped = []


class _Comparison(_Answer):
    """The initiator's answer to one message. An id list settles its range, so no further question
    follows."""

    def __init__(self, items: SealedVector, frame_limit: int) -> None:
        super().__init__(items, frame_limit)
        self.have: list[bytes] = []
        self.need: list[bytes] = []

    def _list(self, asked: Range, lower: int, upper: int) -> None:
        theirs = dict.fromkeys(_each_id(asked.payload))
        ours = dict.fromkeys(_each_id(self._items.ids(lower, upper)))
        self.have += (event_id for event_id in ours if event_id not in theirs)
        self.need += (event_id for event_id in theirs if event_id not in ours)
        self._skip(asked.upper)


def _each_id(ids: bytes) -> Iterator[bytes]:
    return (ids[at : at + ID_SIZE] for at in range(0, len(ids), ID_SIZE))


def _split(items: SealedVector, lower: int, upper: int, bound: Bound) -> Iterator[Range]:
    """The answer for a range that differs: its ids if they are few, otherwise fingerprints of its
    parts."""
    if upper - lower < ID_LIST_BELOW:
        yield Range(bound, Mode.ID_LIST, items.ids(lower, upper))
        return
    size, larger = divmod(upper - lower, BUCKETS)
    edges = [lower + size * bucket + min(bucket, larger) for bucket in range(BUCKETS + 1)]
    for start, end in pairwise(edges):
        inner = end < upper
        above = minimal_bound(items.record(end - 1), items.record(end)) if inner else bound
        yield Range(above, Mode.FINGERPRINT, items.fingerprint(start, end))
