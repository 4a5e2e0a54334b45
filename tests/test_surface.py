"""One table of routes, messages, streams and schedules, read by everything that serves them.

That the templates have the same routes is tested in tests/infra/test_relay.py.
"""

import json
from pathlib import Path

import pytest

from farthing.handlers.web import CORS
from farthing.nostr.messages import Verb
from farthing.relay.verbs import VERBS
from farthing.surface import (
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
from infra.local.server import packet_server
from infra.permissions import TABLES
from tests.test_architecture import WITHOUT_LIBRARY

ROOT = Path(__file__).parents[1]
WITH_PARAMETERS = (
    Route("GET", "/purse/{key}", "purse", ""),
    Route("POST", "/purse/{key}", "fill", ""),
    Route("GET", "/v1/subscriptions/{id}/events/{event}", "subscription", ""),
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


@pytest.mark.parametrize("path", ["/purse/", "/purse", "/purse/a/b", "purse/a", "//purse/a", ""])
def test_a_path_of_another_form_matches_nothing(path: str) -> None:
    assert match("GET", path, WITH_PARAMETERS) is None
    assert allowed_methods(path, WITH_PARAMETERS) == ()


def test_whoever_may_get_may_ask_for_the_head() -> None:
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
