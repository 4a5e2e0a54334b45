"""CloudFormation is answered whatever happens: it waits for nothing else."""

import json
from importlib import import_module
from typing import Any

import pytest

from farthing.context import Agent
from farthing.relay.aether.owner import keys_of
from farthing.settings import Settings
from tests.functions.conftest import sample

EVENT = sample("identity")


class World:
    """SSM and CloudFormation, as far as the function sees them."""

    def __init__(self) -> None:
        self.parameters: dict[str, str] = {}
        self.error: Exception | None = None
        self.answers: list[dict[str, Any]] = []

    def write(self, name: str, text: str | None) -> None:
        if self.error is not None:
            raise self.error
        if text is None:
            self.parameters.pop(name, None)
        else:
            self.parameters[name] = text

    def request(self, method: str, url: str, body: str, headers: object) -> None:
        assert (method, url) == ("PUT", EVENT["ResponseURL"])
        self.answers.append(json.loads(body))


@pytest.fixture
def world(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> World:
    world, module = World(), import_module("functions.identity.handler")
    monkeypatch.setenv("DERIVED_KEYS", "farthing-derived-keys")
    monkeypatch.setattr(module, "write_parameter", world.write)
    monkeypatch.setattr(module.urllib3, "request", world.request)
    return world


def ask(world: World, request: str) -> dict[str, Any]:
    import_module("functions.identity.handler").handler({**EVENT, "RequestType": request}, None)
    return world.answers[-1]


def test_it_tells_public_keys_and_keeps_the_others_apart(agent: Agent, world: World) -> None:
    answer = ask(world, "Create")
    assert answer["Status"] == "SUCCESS"
    assert answer["Data"]["PublicKey"] == agent.settings.pubkey
    kept = world.parameters["farthing-derived-keys"]
    public = answer["Data"]["DerivedKeys"]
    assert kept.startswith(public + ",")
    assert agent.settings.secret_key not in kept + json.dumps(answer)
    derived = Settings(public_key=agent.settings.pubkey, derived_keys=kept)
    assert keys_of(derived) == keys_of(agent.settings)


def test_it_takes_the_parameter_with_it(world: World) -> None:
    ask(world, "Create")
    assert ask(world, "Delete")["Status"] == "SUCCESS"
    assert world.parameters == {}


@pytest.mark.parametrize("request_", ["Create", "Update", "Delete"])
def test_a_failure_is_an_answer_too(world: World, request_: str) -> None:
    """Without one, a deployment waits until it is given up."""
    world.error = PermissionError("denied")
    answer = ask(world, request_)
    assert answer["Status"] == "FAILED"
    assert "PermissionError" in answer["Reason"]
