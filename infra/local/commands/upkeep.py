"""`farthing upkeep`: do the agent's regular work now."""

import time
from argparse import ArgumentParser, Namespace

from farthing.agent.upkeep import DUTIES, publish_announcements, run_duties
from farthing.settings import Settings
from infra.local.commands.bookkeeping import ERRORS as ERRORS
from infra.local.commands.bookkeeping import offline_agent


def add_arguments(parser: ArgumentParser) -> None:
    """The command has no arguments."""


def run(_arguments: Namespace, settings: Settings) -> int:
    started = time.monotonic()
    with offline_agent(settings) as agent:
        # The published identity names the server's address, which only the server knows.
        done = run_duties(agent, [duty for duty in DUTIES if duty is not publish_announcements])
    for result in done.values():
        print(result)
    print(f"in {time.monotonic() - started:.1f} s")
    return 1 if "failed" in done.values() else 0
