"""One table of routes, messages, streams and schedules, read by everything that serves them.

That the templates have the same routes is tested in tests/infra/test_relay.py.
"""

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from aiohttp import web
from aiohttp.streams import EMPTY_PAYLOAD
from aiohttp.test_utils import make_mocked_request

from farthing.handlers.web import CORS
from farthing.nostr.messages import Verb
from farthing.relay.verbs import VERBS
from farthing.settings import Settings
from farthing.surface import (
    DEFAULT,
    DEFAULT_FUNCTION,
    LOCAL_ROUTES,
    MESSAGES,
    ROUTES,
    RUNS_WHEN_BRAKED,
    SCHEDULES,
    STREAMS,
    Message,
    Route,
    allowed_methods,
    functions,
    match,
)
from infra.local.server import packet_server, web_routes
from infra.local.server.http_server import CLIENT
from infra.permissions import TABLES
from tests.test_architecture import WITHOUT_LIBRARY

ROOT = Path(__file__).parents[1]
WITH_PARAMETERS = (
    Route("GET", "/purse/{key}", "purse", ""),
    Route("POST", "/purse/{key}", "fill", ""),
    Route("GET", "/v1/subscriptions/{id}/events/{event}", "subscription", ""),
    Route("DELETE", "/streams/{id+}", "streams", ""),
)


def test_every_function_stands_in_the_tables_and_every_entry_has_its_function() -> None:
    folders = {path.parent.name for path in (ROOT / "functions").glob("*/handler.py")}
    assert functions() == folders - WITHOUT_LIBRARY
    assert functions() >= RUNS_WHEN_BRAKED


@pytest.mark.parametrize("table", [ROUTES, LOCAL_ROUTES, MESSAGES, STREAMS, SCHEDULES])
def test_nothing_stands_in_a_table_twice(table: tuple[Route, ...]) -> None:
    keys = [entry.keys if isinstance(entry, Route) else entry[0] for entry in table]
    assert len(keys) == len(set(keys))


def test_every_verb_has_a_route_and_a_meaning() -> None:
    routed = {message.key for message in MESSAGES if not message.key.startswith("$")}
    assert routed == {verb.value for verb in Verb} == {verb.value for verb in VERBS}


@pytest.mark.parametrize("function", sorted({route.function for route in ROUTES}))
def test_the_sample_of_a_function_is_what_its_route_would_bring(function: str) -> None:
    sample = json.loads((ROOT / f"events/{function}.json").read_text())
    method, path = sample["requestContext"]["http"]["method"], sample["rawPath"]
    found = match(method, path)
    assert found is not None
    assert found.route.function == function
    assert sample["routeKey"] == sample["requestContext"]["routeKey"] == found.key
    assert sample.get("pathParameters", {}) == found.parameters


def test_every_function_has_its_permissions() -> None:
    assert functions() == set(TABLES)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.key)
def test_the_sample_of_a_message_has_its_route(message: Message) -> None:
    sample = json.loads((ROOT / f"events/{message.function}.json").read_text())
    served = {each.key for each in MESSAGES if each.function == message.function}
    assert sample["requestContext"]["routeKey"] in served


def test_parameters_are_decoded_and_match_one_segment() -> None:
    found = match("GET", "/v1/subscriptions/a%2Fb%20c/events/%E2%82%AC", WITH_PARAMETERS)
    assert found is not None
    assert found.key == "GET /v1/subscriptions/{id}/events/{event}"
    assert found.parameters == {"id": "a/b c", "event": "\u20ac"}


@pytest.mark.parametrize("path", ["a/b", "a%2Fb", "a//b/", "/", "a"])
def test_a_last_parameter_may_match_all_that_is_left(path: str) -> None:
    found = match("DELETE", f"/streams/{path}", WITH_PARAMETERS)
    assert found is not None
    assert found.key == "DELETE /streams/{id+}"
    assert found.parameters == {"id": path.replace("%2F", "/")}
    assert match("DELETE", "/streams/", WITH_PARAMETERS) is None
    assert match("DELETE", "/streams", WITH_PARAMETERS) is None


@pytest.mark.parametrize("path", ["/purse/", "/purse", "/purse/a/b", "purse/a", "//purse/a", ""])
def test_a_path_of_another_form_matches_nothing(path: str) -> None:
    assert match("GET", path, WITH_PARAMETERS) is None
    assert allowed_methods(path, WITH_PARAMETERS) == ()


def test_a_get_route_answers_head_too() -> None:
    found = match("HEAD", "/purse/a", WITH_PARAMETERS)
    assert found is not None
    assert (found.route.function, found.key) == ("purse", "HEAD /purse/{key}")


def test_all_methods_of_a_path_are_allowed_together() -> None:
    assert allowed_methods("/purse/a", WITH_PARAMETERS) == ("GET", "HEAD", "OPTIONS", "POST")
    assert match("DELETE", "/purse/a", WITH_PARAMETERS) is None


def test_pages_may_use_every_method_that_a_route_has() -> None:
    methods = set(CORS["Access-Control-Allow-Methods"].split(", "))
    assert methods >= {method for route in ROUTES for method in route.methods}


def test_the_short_way_of_packets_is_a_route() -> None:
    found = match("POST", packet_server.PATH)
    assert found is not None
    assert found.route.function == "ilp"


class Inline:
    """A runner that runs everything at once."""

    def submit(self, work: Callable[[], Any], done: Callable[[Any], object]) -> None:
        done(work())


def local_function(monkeypatch: pytest.MonkeyPatch, method: str, path: str) -> tuple[str, str]:
    """The function that the local server calls for a request, and the route key that it gets."""

    def load(name: str) -> web_routes.Handler:
        # A handler that answers with its own name and with the route key in its event.
        return lambda event, _: {"statusCode": 200, "body": f"{name} {event['routeKey']}"}

    async def ordinary(*_: object) -> None: ...

    def nothing(*_: object) -> None: ...

    monkeypatch.setattr(web_routes, "load_handler", load)
    settings: Any = Settings(aether=True)
    run, meter = Inline(), Mock()
    served = web_routes.WebRoutes(settings, run, run, meter, ordinary, nothing, nothing)
    request = make_mocked_request(method, path, payload=EMPTY_PAYLOAD)
    request[CLIENT] = "192.0.2.1"
    answer = asyncio.run(served.answer(request))
    assert isinstance(answer, web.Response) and answer.text is not None
    function, _, key = answer.text.partition(" ")
    return function, key


@pytest.mark.filterwarnings("ignore::aiohttp.web.NotAppKeyWarning")
@pytest.mark.parametrize(
    ("key", "function"), [(key, route.function) for route in ROUTES for key in route.keys]
)
def test_the_local_server_calls_the_function_of_each_route(
    monkeypatch: pytest.MonkeyPatch, key: str, function: str
) -> None:
    method, path = key.split(" ")
    asked = re.sub(r"\{\w+\+?\}", "some", path)
    assert local_function(monkeypatch, method, asked) == (function, key)


@pytest.mark.filterwarnings("ignore::aiohttp.web.NotAppKeyWarning")
def test_the_local_server_calls_the_default_function_for_no_route(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert local_function(monkeypatch, "GET", "/nowhere") == (DEFAULT_FUNCTION, DEFAULT)
