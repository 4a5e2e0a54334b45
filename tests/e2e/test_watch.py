"""`farthing watch` over a relay that ends its connections, as API Gateway does: it goes on."""

import asyncio
import json
import time
from typing import Any

import pytest
from aiohttp import web

from infra.local.commands import watch
from tests.relay.world import signed


class Relay:
    """Serves the connections that a test has written down, and ends each."""

    def __init__(self, *answers: list[Any]) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []

    async def serve(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.asked.append(json.loads((await socket.receive()).data))
        for frame in self.answers.pop(0):
            await socket.send_str(json.dumps(frame))
        await socket.close()
        return socket


async def watch_until_closed(relay: Relay, filter: dict[str, Any]) -> None:
    app = web.Application()
    app.router.add_get("/", relay.serve)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        await watch._watch(f"ws://{host}:{port}/", filter, as_json=True)
    finally:
        await runner.cleanup()


def test_a_watch_goes_on_when_its_connection_ends(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_FIRST_WAIT", 0)
    events = [json.loads(signed(content=str(number)).to_json()) for number in range(3)]
    sent = [["EVENT", "watch", event] for event in events]
    relay = Relay(
        [sent[0], ["EOSE", "watch"], sent[1]],
        [sent[1], ["EOSE", "watch"], sent[2]],  # one of them again
        [["CLOSED", "watch", "error: enough"]],
    )
    began = int(time.time())

    with pytest.raises(watch.WatchFailed, match="enough"):
        asyncio.run(watch_until_closed(relay, {"kinds": [1], "limit": 5}))

    shown = [json.loads(line)["content"] for line in capsys.readouterr().out.splitlines()]
    assert shown == ["0", "1", "2"]
    first, *again = [message[2] for message in relay.asked]
    assert first == {"kinds": [1], "limit": 5}
    for filter in again:
        assert set(filter) == {"kinds", "since"}
        assert began - 600 <= filter["since"] <= began, "a little before it ended"
