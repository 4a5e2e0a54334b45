"""Wakes of paid subscriptions through SQS, one message for each wake."""

from collections.abc import Callable
from functools import cached_property
from math import ceil
from typing import Any

from farthing.aws.recipients import make_client
from farthing.ports.wakes import write_wake

_LONGEST_DELAY = 900  # the longest delay that SQS accepts


class SqsWakes:
    def __init__(self, url: str, client: Callable[[], Any] = make_client) -> None:
        self._url = url
        self._make_client = client

    @cached_property
    def _client(self) -> Any:
        return self._make_client()

    def wake(self, owner: str, subscription_id: str, delay: float = 0.0) -> None:
        self._client.send_message(
            QueueUrl=self._url,
            MessageBody=write_wake(owner, subscription_id),
            # Rounded up: a wake before its time finds nothing to do.
            DelaySeconds=min(ceil(delay), _LONGEST_DELAY),
        )
