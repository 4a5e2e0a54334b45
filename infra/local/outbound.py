"""Requests to peers from the local server: a handler in the hub must not block the others."""

from collections.abc import Mapping

from farthing.cloud.outbound import HttpOutbound
from farthing.ilp.outbound import Response
from infra.local.hub import Hub


class LocalOutbound:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._http = HttpOutbound()

    def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        if not self._hub.is_inside():
            return self._http.post(url, headers, body, timeout)
        response: Response = self._hub.call_outside(
            lambda: self._http.post(url, headers, body, timeout)
        )
        return response
