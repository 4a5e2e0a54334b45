"""`farthing run`: relay and connector on this machine."""

import asyncio
from argparse import ArgumentParser, Namespace

from farthing.settings import Settings
from infra.local.server.folder import CannotStart

ERRORS = (CannotStart,)


def add_arguments(parser: ArgumentParser) -> None:
    """The command has no arguments: it is configured by settings."""


def run(_arguments: Namespace, settings: Settings) -> int:
    from infra.local.server.app import serve

    with asyncio.Runner(loop_factory=_new_event_loop) as runner:
        runner.run(serve(settings))
    return 0


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # uvloop does not support this platform
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
