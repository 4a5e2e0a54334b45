"""Requests to peers, by urllib3: it comes with botocore, and keeps connections."""

from collections.abc import Mapping

import urllib3

from farthing.ilp.outbound import OutboundFailed, OutboundTimeout, Response

# A reply larger than any packet is not read to its end.
LARGEST_REPLY = 64 * 1024


class HttpOutbound:
    def __init__(self) -> None:
        self._pool = urllib3.PoolManager(num_pools=32, maxsize=16, retries=False)

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
            try:
                return Response(reply.status, reply.read(LARGEST_REPLY))
            finally:
                reply.release_conn()
        except urllib3.exceptions.ReadTimeoutError:
            raise OutboundTimeout("no answer in time") from None
        except urllib3.exceptions.HTTPError as error:
            raise OutboundFailed(type(error).__name__) from None
