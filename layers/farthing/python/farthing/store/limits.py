"""DynamoDB's limits on keys, items, batches and transactions. Every engine checks them and raises
ValueError, so that no write succeeds on one machine and fails in the cloud."""

from collections.abc import Sequence

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

# Bytes of a character. A text of at most a quarter of the limit need not be encoded.
_UTF8_WORST = 4
_SURELY_FITS = MAX_SK_BYTES // _UTF8_WORST


def check_key(pk: str, sk: str) -> None:
    if 0 < len(pk) <= _SURELY_FITS and 0 < len(sk) <= _SURELY_FITS:
        return
    _check_length(pk, MAX_PK_BYTES, "partition key")
    _check_length(sk, MAX_SK_BYTES, "sort key")


def _check_length(key: str, longest: int, name: str) -> None:
    if not key:
        raise ValueError(f"{name}: expected text, got an empty one")
    if len(key) * _UTF8_WORST > longest and len(key.encode()) > longest:
        raise ValueError(f"{name}: expected at most {longest} bytes")


def check_query(query: Query) -> None:
    _check_length(query.pk, MAX_PK_BYTES, "partition key")
    for bound in (query.low, query.high, query.after):
        if bound:
            _check_length(bound, MAX_SK_BYTES, "sort key")
    if query.limit is not None and query.limit < 1:
        raise ValueError("expected a query's limit of at least 1")


def check_write(write: TransactWrite) -> None:
    check_key(write.pk, write.sk)
    if isinstance(write, Put):
        _check_names(write.item)
    elif isinstance(write, Add):
        _check_names(write.amounts)
        _check_names(write.assign)
        if not write.amounts.keys().isdisjoint(write.assign):
            raise ValueError("expected an attribute to be added to or assigned, got both")


_KEY_NAMES = frozenset({PK, SK})


def _check_names(names: Item) -> None:
    if not _KEY_NAMES.isdisjoint(names):
        name = PK if PK in names else SK
        raise ValueError(f"expected an attribute's name, got {name!r}, which belongs to the key")


def check_size(pk: str, sk: str, item: Item) -> None:
    if item_size(pk, sk, item) > MAX_ITEM_BYTES:
        raise ValueError(f"expected an item of at most {MAX_ITEM_BYTES} bytes")


def check_batch(writes: Sequence[BatchWrite]) -> None:
    checked: Item | None = None
    for write in writes:
        kind = type(write)
        if kind is not Put and kind is not Delete:
            raise ValueError("expected only puts and deletes in a batch")
        if write.condition is not None:
            raise ValueError("expected no conditions in a batch")
        _, pk, sk = write[:3]
        if not (0 < len(pk) <= _SURELY_FITS and 0 < len(sk) <= _SURELY_FITS):
            check_key(pk, sk)
        # An event's postings share one item, so it is checked once.
        if isinstance(write, Put) and (item := write.item) is not checked:
            _check_names(item)
            checked = item


def check_transaction(writes: Sequence[TransactWrite], most: int = MAX_TRANSACTION) -> None:
    if len(writes) > most:
        raise ValueError(f"expected at most {most} operations in a transaction, got {len(writes)}")
    if len({(write.table, write.pk, write.sk) for write in writes}) < len(writes):
        raise ValueError("expected each item once in a transaction")
    if len({write.table in VOLATILE for write in writes}) > 1:
        raise ValueError("expected only durable or only volatile tables in a transaction, got both")
    for write in writes:
        check_write(write)


def check_transaction_size(writes: Sequence[TransactWrite]) -> None:
    if sum(_written_size(write) for write in writes) > MAX_TRANSACTION_BYTES:
        raise ValueError(f"expected a transaction of at most {MAX_TRANSACTION_BYTES} bytes")


def _written_size(write: TransactWrite) -> int:
    match write:
        case Put():
            return item_size(write.pk, write.sk, write.item)
        case Add():
            return item_size(write.pk, write.sk, {**write.amounts, **write.assign})
        case _:
            return item_size(write.pk, write.sk, {})


def last_of_each(writes: Sequence[BatchWrite]) -> list[BatchWrite]:
    """A batch with only the last write of each item."""
    return list({(write.table, write.pk, write.sk): write for write in writes}.values())
