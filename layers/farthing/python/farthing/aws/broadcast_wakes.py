"""Wakes of the outbox, by way of SQS."""

import logging
from collections.abc import Callable
from functools import cached_property
from typing import Any

from farthing.aws.recipients import make_client
from farthing.ports.broadcast_wakes import write_broadcast_wake

log = logging.getLogger("farthing")

LONGEST_DELAY = 900  # the longest delay that SQS accepts


class SqsBroadcastWakes:
    """`url` returns the queue's URL. It is called with the first wake."""

    def __init__(self, url: Callable[[], str], client: Callable[[], Any] = make_client) -> None:
        self._find_url = url
        self._make_client = client

    @cached_property
    def _client(self) -> Any:
        return self._make_client()

    @cached_property
    def _url(self) -> str:
        return self._find_url()

    def wake(self, event_id: str, delay: float = 0.0) -> None:
        # A delivery that is due later waits for the schedule: an early wake would find nothing to
        # do.
        if delay <= LONGEST_DELAY:
            self._send(event_id, round(delay))

    def wake_for_new(self) -> None:
        self._send(None, 0)

    def _send(self, event_id: str | None, delay: int) -> None:
        """Send a wake. A failure is only logged: the delivery is stored, and the schedule will find
        it."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            self._client.send_message(
                QueueUrl=self._url,
                MessageBody=write_broadcast_wake(event_id),
                DelaySeconds=delay,
            )
        except (BotoCoreError, ClientError) as error:
            log.warning(
                "the outbox could not be woken, the schedule will wake it",
                extra={"reason": str(error)},
            )
