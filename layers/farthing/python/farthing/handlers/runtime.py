"""The agent of all handlers. In Lambda it is made from the environment; elsewhere it is
installed."""

import gc
import os

from farthing.context import Agent

_installed: Agent | None = None


def install(agent: Agent | None) -> None:
    """Set the agent of all handlers in this process."""
    global _installed
    _installed = agent


def agent() -> Agent:
    if _installed is None:
        # Imported only in Lambda, because the import of AWS's libraries is slow.
        from farthing.aws.environment import make_agent

        install(make_agent())
    assert _installed is not None
    return _installed


def warm_up() -> None:
    """In Lambda, build the agent while the container starts: during the start even a small function
    has a whole processor."""
    if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:
        # The imported modules live as long as the process. The garbage collector would search them
        # again and again while the agent is built: a fifth of that time.
        gc.freeze()
        agent()
