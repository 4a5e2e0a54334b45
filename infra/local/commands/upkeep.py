"""`farthing upkeep`: what the agent does by itself from time to time, done now."""

import time
from argparse import ArgumentParser, Namespace

from farthing.agent.upkeep import DUTIES, keep_up, say_who_we_are
from farthing.settings import Settings
from infra.local.commands.bookkeeping import ERRORS as ERRORS
from infra.local.commands.bookkeeping import offline_agent


def add_arguments(parser: ArgumentParser) -> None:
    """There is nothing to choose."""


def run(_arguments: Namespace, settings: Settings) -> int:
    started = time.monotonic()
    with offline_agent(settings) as agent:
        # Who we are depends on where the server listens, which only the server knows.
        done = keep_up(agent, [duty for duty in DUTIES if duty is not say_who_we_are])
    for result in done.values():
        print(result)
    print(f"in {time.monotonic() - started:.1f} s")
    return 1 if "failed" in done.values() else 0
