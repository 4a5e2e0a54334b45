"""Requests to peers, by urllib3: it comes with botocore, and keeps connections."""

import logging
import time
from collections.abc import Callable, Mapping

import urllib3

from farthing.ilp.outbound import (
    OutboundFailed,
    OutboundTimeout,
    Response,
    attempts,
    may_be_taken_later,
)

log = logging.getLogger("farthing")

# A reply larger than any packet is not read to its end.
LARGEST_REPLY = 64 * 1024


class HttpOutbound:
    def __init__(self, sleep: Callable[[float], None] = time.sleep) -> None:
        self._pool = urllib3.PoolManager(num_pools=32, maxsize=16, retries=False)
        self._sleep = sleep

    def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        try:
            reply = self._pool.request(
                "POST",
                url,
                body=body,
                headers=dict(headers),
                timeout=urllib3.Timeout(total=timeout),
                redirect=False,  # a redirect would lead away from the registered host
                preload_content=False,
            )
            body = b""
            try:
                body = reply.read(LARGEST_REPLY)
                return Response(reply.status, body)
            finally:
                if len(body) == LARGEST_REPLY:
                    reply.close()  # the rest would be taken for the next request's answer
                reply.release_conn()
        except urllib3.exceptions.ReadTimeoutError:
            raise OutboundTimeout("no answer in time") from None
        except urllib3.exceptions.HTTPError as error:
            raise OutboundFailed(type(error).__name__) from None

    def call_back(self, url: str, headers: Mapping[str, str], body: bytes, seconds: float) -> None:
        """At once: in Lambda nothing runs after the response."""
        trouble = ""
        for wait, left in attempts(seconds):
            self._sleep(wait)
            try:
                status = self.post(url, headers, body, left).status
            except OutboundFailed as error:
                trouble = str(error)
                continue
            trouble = f"status {status}" if status >= 300 else ""
            if not may_be_taken_later(status):
                break
        if trouble:
            # The peer asks again with the same Request-Id and gets the same reply.
            log.warning("a callback was not taken: %s", trouble)
