"""The frames of negentropy syncing, and its errors (NIP-77)."""

from enum import StrEnum

import orjson


class SyncError(StrEnum):
    """The reason for the end of a sync: the codes of NIP-77."""

    RESULTS_TOO_BIG = "RESULTS_TOO_BIG"
    CLOSED = "CLOSED"
    FILTER_NOT_FOUND = "FILTER_NOT_FOUND"
    FILTER_INVALID = "FILTER_INVALID"


def neg_message(sync_id: str, octets: bytes) -> str:
    return orjson.dumps(("NEG-MSG", sync_id, octets.hex())).decode()


def neg_error(sync_id: str, reason: str, maximum: int | None = None) -> str:
    """A NEG-ERR frame. RESULTS_TOO_BIG also states the `maximum`."""
    more = () if maximum is None else (maximum,)
    return orjson.dumps(("NEG-ERR", sync_id, reason, *more)).decode()
