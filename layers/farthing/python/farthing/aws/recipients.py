"""Recipients that later calls serve: they are passed on through SQS."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import orjson

from farthing.ports.recipients import Part

# Of one request to SQS.
_MOST_MESSAGES, _MOST_BYTES = 10, 256 * 1024
_ATTEMPTS = 5
_WAIT = 0.1
_LONGEST_DELAY = 60


class NotTaken(Exception):
    """SQS has not taken every message."""


def make_client() -> Any:
    from botocore.config import Config
    from botocore.session import get_session

    config = Config(connect_timeout=2, read_timeout=5, retries={"total_max_attempts": 4})
    return get_session().create_client("sqs", config=config)


class SqsRecipients:
    # Posts of a second or two. A failed part is repeated as a whole, so parts are small.
    most_at_once = 500

    def __init__(
        self,
        url: str,
        client: Callable[[], Any] = make_client,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._url = url
        self._make_client = client
        self._sleep = sleep

    @cached_property
    def _client(self) -> Any:
        return self._make_client()

    def put(self, parts: Sequence[Part]) -> None:
        for batch in _batches(parts):
            self._send(batch)

    def _send(self, batch: Sequence[tuple[Part, str]]) -> None:
        entries = [
            {"Id": str(number), "MessageBody": body, "DelaySeconds": _delay(part)}
            for number, (part, body) in enumerate(batch)
        ]
        for attempt in range(_ATTEMPTS):
            answer = self._client.send_message_batch(QueueUrl=self._url, Entries=entries)
            failed = {each["Id"] for each in answer.get("Failed", ())}
            entries = [entry for entry in entries if entry["Id"] in failed]
            if not entries:
                return
            self._sleep(_WAIT * 2**attempt)
        raise NotTaken(f"{len(entries)} of {len(batch)} parts")


def _delay(part: Part) -> int:
    """The delay in seconds: longer after each failed attempt."""
    return min(2**part.attempt, _LONGEST_DELAY) if part.attempt else 0


def _batches(parts: Sequence[Part]) -> Iterator[list[tuple[Part, str]]]:
    batch: list[tuple[Part, str]] = []
    size = 0
    for part in parts:
        body = write_part(part)
        length = len(body.encode())
        if batch and (len(batch) == _MOST_MESSAGES or size + length > _MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append((part, body))
        size += length
    if batch:
        yield batch


def write_part(part: Part) -> str:
    return orjson.dumps(tuple(part)).decode()  # orjson takes no tuples with names


def read_part(body: str) -> Part:
    return Part(*orjson.loads(body))
