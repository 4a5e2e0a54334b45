"""The frames of negentropy syncing, and its errors (NIP-77)."""

from enum import StrEnum

import orjson


class SyncError(StrEnum):
    """Why a sync ends: the document's codes."""

    RESULTS_TOO_BIG = "RESULTS_TOO_BIG"
    CLOSED = "CLOSED"
    FILTER_NOT_FOUND = "FILTER_NOT_FOUND"
    FILTER_INVALID = "FILTER_INVALID"


def neg_message(sync_id: str, octets: bytes) -> str:
    return orjson.dumps(("NEG-MSG", sync_id, octets.hex())).decode()


def neg_error(sync_id: str, reason: str, maximum: int | None = None) -> str:
    """`maximum` goes with RESULTS_TOO_BIG."""
    more = () if maximum is None else (maximum,)
    return orjson.dumps(("NEG-ERR", sync_id, reason, *more)).decode()
