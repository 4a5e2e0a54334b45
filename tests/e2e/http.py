"""Plain HTTP requests to the relay."""

from dataclasses import dataclass

import aiohttp
from multidict import CIMultiDictProxy

from tests.e2e.client import Background
from tests.e2e.relay_process import RelayProcess


@dataclass(frozen=True)
class Answer:
    status: int
    headers: CIMultiDictProxy[str]
    body: str


def request(
    background: Background, method: str, url: str, headers: dict[str, str] | None = None,
    body: bytes | None = None,
) -> Answer:  # fmt: skip
    async def ask() -> Answer:
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url, headers=headers, data=body) as response,
        ):
            return Answer(response.status, response.headers, await response.text())

    return background.run(ask())


def metrics(background: Background, relay: RelayProcess) -> dict[str, float]:
    text = request(background, "GET", f"{relay.http}/metrics").body
    lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(number) for name, number in lines}
