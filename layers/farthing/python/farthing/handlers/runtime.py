"""The agent that handlers work for: made from the environment in Lambda, installed elsewhere."""

import os

from farthing.context import Agent

_installed: Agent | None = None


def install(agent: Agent | None) -> None:
    """Have all handlers of this process work for an agent made elsewhere."""
    global _installed
    _installed = agent


def agent() -> Agent:
    if _installed is None:
        # Loaded in Lambda only: AWS's libraries take their time.
        from farthing.aws.environment import make_agent

        install(make_agent())
    assert _installed is not None
    return _installed


def warm_up() -> None:
    """In Lambda, build the agent while the container starts: then even a small function has a whole
    processor."""
    if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:
        agent()
