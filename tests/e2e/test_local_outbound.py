"""Requests of the local server: sent from the event loop while handlers wait in the scheduler."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from farthing.ports.hosts import ANYWHERE
from farthing.ports.outbound import OutboundFailed, OutboundTimeout, Response
from infra.local.server.outbound import LocalOutbound
from infra.local.server.workers import LoopMailbox
from infra.local.server.write_scheduler import WriteScheduler


def in_the_hub(work: Callable[[LocalOutbound, WriteScheduler], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        mailbox = LoopMailbox(asyncio.get_running_loop())
        scheduler = WriteScheduler(mailbox)
        outbound = LocalOutbound(scheduler, mailbox, ANYWHERE)
        try:
            return await work(outbound, scheduler)
        finally:
            await asyncio.to_thread(scheduler.stop)
            await outbound.close()

    return asyncio.run(run())


class Answer:
    """What `session.post` returns, with the timeout that it was given."""

    given: aiohttp.ClientTimeout | None = None
    status = 200

    def __init__(self, *_: Any, timeout: aiohttp.ClientTimeout, **__: Any) -> None:
        type(self).given = timeout

    async def __aenter__(self) -> "Answer":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    @property
    def content(self) -> "Answer":
        return self

    async def read(self, _: int) -> bytes:
        return b""


def test_a_timeout_is_not_rounded_up() -> None:
    async def work(outbound: LocalOutbound, scheduler: WriteScheduler) -> Response:
        outbound._session.post = Answer  # type: ignore[assignment,method-assign]
        post = scheduler.call, lambda: outbound.post("http://127.0.0.1:1/", {}, b"", 28.25)
        response: Response = await asyncio.to_thread(*post)
        return response

    assert in_the_hub(work) == (200, b"")
    assert Answer.given is not None
    assert Answer.given.total == 28.25
    assert Answer.given.ceil_threshold > 10**9


class Deaf:
    """What `session.post` returns for a host that never answers."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    async def __aenter__(self) -> None:
        await asyncio.Event().wait()

    async def __aexit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("by_scheduler", [True, False])
@pytest.mark.parametrize("steps", [0, 3])
def test_a_stop_ends_requests_of_handlers_and_of_other_threads(
    by_scheduler: bool, steps: int
) -> None:
    """Before the request has taken its first step, and while it waits for the answer."""

    async def work(outbound: LocalOutbound, scheduler: WriteScheduler) -> None:
        outbound._session.post = Deaf  # type: ignore[assignment,method-assign]

        def send() -> None:
            outbound.post("http://127.0.0.1:1/", {}, b"", 1e6)

        call = (scheduler.call, send) if by_scheduler else (send,)
        sending = asyncio.create_task(asyncio.to_thread(*call))
        while not outbound._under_way:
            await asyncio.sleep(0)
        for _ in range(steps):
            await asyncio.sleep(0)
        outbound.give_up()
        with pytest.raises(OutboundTimeout):
            await sending
        with pytest.raises(OutboundFailed):  # nothing is sent any more
            await asyncio.to_thread(*call)

    in_the_hub(work)


@pytest.mark.parametrize("seconds", [0, -0.7])
def test_without_time_nothing_is_sent(seconds: float) -> None:
    async def work(outbound: LocalOutbound, scheduler: WriteScheduler) -> None:
        def send() -> None:
            with pytest.raises(OutboundTimeout):
                outbound.post("http://127.0.0.1:1/", {}, b"", seconds)

        await asyncio.to_thread(scheduler.call, send)

    in_the_hub(work)


def test_a_handler_that_sleeps_lets_others_run() -> None:
    async def work(outbound: LocalOutbound, scheduler: WriteScheduler) -> None:
        ran = threading.Event()

        def sleeper() -> None:
            while not ran.is_set():  # for ever, if the other could not run meanwhile
                outbound.sleep(0.001)

        sleeping = asyncio.to_thread(scheduler.call, sleeper)
        await asyncio.wait_for(
            asyncio.gather(sleeping, asyncio.to_thread(scheduler.call, ran.set)), 30
        )

    in_the_hub(work)
