"""What every engine refuses with a ValueError, so that nothing passes on one machine and fails in
the cloud: DynamoDB's limits on keys, items, batches and transactions."""

from collections.abc import Iterable, Sequence

from farthing.store.attributes import PK, SK, item_size
from farthing.store.table import (
    MAX_TRANSACTION,
    VOLATILE,
    Add,
    BatchWrite,
    Delete,
    Item,
    Put,
    Query,
    TransactWrite,
)

MAX_PK_BYTES = 2048
MAX_SK_BYTES = 1024
MAX_ITEM_BYTES = 400 * 1024
MAX_TRANSACTION_BYTES = 4 * 1024 * 1024

_UTF8_WORST = 4  # bytes a character: what is shorter than a quarter need not be encoded to be sure
_SURELY_FITS = MAX_SK_BYTES // _UTF8_WORST


def check_key(pk: str, sk: str) -> None:
    if 0 < len(pk) <= _SURELY_FITS and 0 < len(sk) <= _SURELY_FITS:
        return
    _check_length(pk, MAX_PK_BYTES, "partition key")
    _check_length(sk, MAX_SK_BYTES, "sort key")


def _check_length(key: str, longest: int, name: str) -> None:
    if not key:
        raise ValueError(f"the {name} is empty")
    if len(key) * _UTF8_WORST > longest and len(key.encode()) > longest:
        raise ValueError(f"the {name} is longer than {longest} bytes")


def check_query(query: Query) -> None:
    _check_length(query.pk, MAX_PK_BYTES, "partition key")
    for bound in (query.low, query.high, query.after):
        if bound:
            _check_length(bound, MAX_SK_BYTES, "sort key")
    if query.limit is not None and query.limit < 1:
        raise ValueError("a query's limit is at least 1")


def check_write(write: TransactWrite) -> None:
    check_key(write.pk, write.sk)
    match write:
        case Put():
            _check_names(write.item)
        case Add():
            _check_names([*write.amounts, *write.assign])
            if not write.amounts.keys().isdisjoint(write.assign):
                raise ValueError("an attribute is either added to or assigned")


def _check_names(names: Iterable[str]) -> None:
    for name in names:
        if name in (PK, SK):
            raise ValueError(f"{name!r} is the key's, not an attribute's name")


def check_size(pk: str, sk: str, item: Item) -> None:
    if item_size(pk, sk, item) > MAX_ITEM_BYTES:
        raise ValueError(f"an item has at most {MAX_ITEM_BYTES} bytes")


def check_batch(writes: Sequence[BatchWrite]) -> None:
    checked: Item | None = None
    for write in writes:
        kind = type(write)
        if kind is not Put and kind is not Delete:
            raise ValueError("a batch holds puts and deletes only")
        if write.condition is not None:
            raise ValueError("a batch has no conditions")
        check_key(write.pk, write.sk)
        # An event's postings share one item: it is looked at once.
        if isinstance(write, Put) and write.item is not checked:
            _check_names(write.item)
            checked = write.item


def check_transaction(writes: Sequence[TransactWrite], most: int = MAX_TRANSACTION) -> None:
    if len(writes) > most:
        raise ValueError(f"a transaction has at most {most} operations")
    if len({(write.table, write.pk, write.sk) for write in writes}) < len(writes):
        raise ValueError("a transaction names each item once")
    if len({write.table in VOLATILE for write in writes}) > 1:
        raise ValueError("a transaction cannot span durable and volatile tables")
    for write in writes:
        check_write(write)


def check_transaction_size(writes: Sequence[TransactWrite]) -> None:
    if sum(_written_size(write) for write in writes) > MAX_TRANSACTION_BYTES:
        raise ValueError(f"a transaction has at most {MAX_TRANSACTION_BYTES} bytes")


def _written_size(write: TransactWrite) -> int:
    match write:
        case Put():
            return item_size(write.pk, write.sk, write.item)
        case Add():
            return item_size(write.pk, write.sk, {**write.amounts, **write.assign})
        case _:
            return item_size(write.pk, write.sk, {})


def last_of_each(writes: Sequence[BatchWrite]) -> list[BatchWrite]:
    """A batch in which each item is named once: the last write of it wins."""
    return list({(write.table, write.pk, write.sk): write for write in writes}.values())
