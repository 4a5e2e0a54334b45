"""The handlers behind settlement engines and schedules, with their sample payloads."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from farthing.agent.follows import newest
from farthing.context import Agent
from farthing.handlers import runtime
from farthing.nostr.kinds import Kind
from tests.functions.conftest import Invoke, sample
from tests.ilp.paying import PAYER

TOKEN = "the-settlement-engine-shows-this-token-0123456789"


@pytest.fixture
def settling(agent: Agent) -> Iterator[Agent]:
    settling = replace(agent, settings=replace(agent.settings, settlement_token=TOKEN))
    settling.ledger.add_peer(PAYER)
    runtime.install(settling)
    return settling


def changed(**changes: Any) -> dict[str, Any]:
    return {**sample("settlements"), **changes}


def test_an_engine_reports_a_payment(settling: Agent, invoke: Invoke) -> None:
    for _ in range(2):  # the second time is a repeat
        response = invoke("settlements")
        assert response["statusCode"] == 201
        assert json.loads(response["body"]) == {"amount": "250", "scale": 9}
    assert settling.ledger.balance(PAYER.id).posted == -250


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"headers": {"idempotency-key": "k"}}, 401),
        ({"headers": {"idempotency-key": "k", "authorization": "Bearer wrong"}}, 401),
        ({"headers": {"authorization": f"Bearer {TOKEN}"}}, 400),
        ({"pathParameters": {"id": "nobody"}}, 404),
        ({"body": "junk"}, 400),
        ({"body": '{"amount": 5, "scale": 9}'}, 400),
    ],
    ids=str,
)
def test_what_is_wrong_is_refused_and_changes_nothing(
    settling: Agent, invoke: Invoke, changes: dict[str, Any], status: int
) -> None:
    assert invoke("settlements", changed(**changes))["statusCode"] == status
    assert settling.ledger.balance(PAYER.id).posted == 0


def test_a_refusal_names_how_to_authenticate(settling: Agent, invoke: Invoke) -> None:
    refused = invoke("settlements", changed(headers={}))
    assert refused["headers"]["WWW-Authenticate"] == "Bearer"
    assert refused["headers"]["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("scheme", ["bearer", "BEARER", "Bearer "])
def test_the_scheme_has_no_case(settling: Agent, invoke: Invoke, scheme: str) -> None:
    headers = {**sample("settlements")["headers"], "authorization": f"{scheme} {TOKEN}"}
    assert invoke("settlements", changed(headers=headers))["statusCode"] == 201


def test_a_key_stands_for_one_payment(settling: Agent, invoke: Invoke) -> None:
    invoke("settlements")
    other = changed(body='{"amount": "251", "scale": 9}')
    assert invoke("settlements", other)["statusCode"] == 409
    assert settling.ledger.balance(PAYER.id).posted == -250


def test_without_a_token_of_its_own_no_engine_is_believed(agent: Agent, invoke: Invoke) -> None:
    agent.ledger.add_peer(PAYER)
    headers = {"authorization": "Bearer ", "idempotency-key": "k"}
    assert invoke("settlements", changed(headers=headers))["statusCode"] == 401


def test_upkeep_says_who_we_are(agent: Agent, invoke: Invoke) -> None:
    done = invoke("upkeep")
    assert "failed" not in done.values()
    assert newest(agent, agent.settings.pubkey, Kind.ILP_PEER_INFO) is not None
    assert invoke("upkeep")["publish_announcements"] == "published 0 events of our own"
