"""Pages of packed postings. A reader of whole lists takes the columns, which are cut out of all
items together. Making a row for each posting would take longer than reading it from the file."""

import sys
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

from farthing.store.postings import PostingRows, Postings
from farthing.store.sqlite_packing import (
    AUTHOR_AT,
    AUTHOR_END,
    KIND_AT,
    POSTING_FORM,
    POSTING_OCTETS,
    WRITTEN_AT,
    unpack_postings,
)
from farthing.store.sqlite_rows import new_row
from farthing.store.table import Row


def posting_rows(sort_keys: list[str], encoded: list[bytes]) -> Sequence[Row]:
    """The rows of postings with these sort keys and encoded items."""
    if set(map(len, encoded)) == {POSTING_OCTETS}:
        items = b"".join(encoded)
        if set(items[::POSTING_OCTETS]) == {POSTING_FORM}:
            return _PackedRows(sort_keys, encoded, items)
    return _rows(sort_keys, encoded)


def _rows(sort_keys: list[str], encoded: list[bytes]) -> list[Row]:
    return list(map(new_row, zip(sort_keys, unpack_postings(encoded), strict=True)))


class _PackedRows(PostingRows):
    __slots__ = ("_encoded", "_items", "_made", "_sort_keys")

    def __init__(self, sort_keys: list[str], encoded: list[bytes], items: bytes) -> None:
        self._sort_keys = sort_keys
        self._encoded = encoded
        self._items = items  # the same, one after another
        self._made: list[Row] | None = None

    def _rows(self) -> list[Row]:
        if self._made is None:
            self._made = _rows(self._sort_keys, self._encoded)
        return self._made

    def __len__(self) -> int:
        return len(self._sort_keys)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows())

    def __getitem__(self, index: Any) -> Any:
        return self._rows()[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._rows() == list(other)

    __hash__ = None  # type: ignore[assignment]

    def columns(self) -> Postings:
        kinds, written = self._numbers("H", KIND_AT), self._numbers("I", WRITTEN_AT)
        return Postings(self._sort_keys, kinds, _Authors(self._items), written)

    def _numbers(self, code: str, at: int) -> Sequence[int]:
        """A column of big-endian numbers."""
        numbers = array(code)
        width = numbers.itemsize
        octets = bytearray(width * len(self))
        for each in range(width):
            octets[each::width] = self._items[at + each :: POSTING_OCTETS]
        numbers.frombytes(octets)
        if sys.byteorder == "little":
            numbers.byteswap()
        return numbers


class _Authors(Sequence[str]):
    """The column of authors, which few readers look at."""

    __slots__ = ("_items",)

    def __init__(self, items: bytes) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items) // POSTING_OCTETS

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self._items), POSTING_OCTETS):
            yield self._items[start + AUTHOR_AT : start + AUTHOR_END].hex()
