"""The functions about purses, with the payloads that AWS sends and over moto's DynamoDB."""

import json
from dataclasses import replace

import pytest

from farthing.btp_nips.messages import Model
from farthing.context import Agent
from farthing.handlers import runtime
from tests.functions.conftest import Invoke, sample
from tests.ilp.paying import PAYER
from tests.purses.test_purse_http import nostr
from tests.relay.world import ALICE
from tests.subscriptions.world import Subscriber

TOKEN = "the-payment-processor-shows-this-token-0123456789"
SITE = "https://relay.example"


@pytest.fixture
def paid(agent: Agent) -> Agent:
    settings = replace(agent.settings, price_per_byte=10, purse_token=TOKEN, web_url=SITE)
    paid = replace(agent, settings=settings, _parts={})
    runtime.install(paid)
    return paid


def test_a_credit_is_counted_once_and_shown_to_its_key_alone(paid: Agent, invoke: Invoke) -> None:
    for _ in range(2):
        assert invoke("credits")["statusCode"] == 201
    asked = sample("purses")
    assert invoke("purses", asked)["statusCode"] == 401
    signed = nostr(paid, ALICE, "GET", SITE + asked["rawPath"])

    answer = invoke("purses", {**asked, "headers": {"authorization": signed}})

    assert answer["statusCode"] == 200
    assert json.loads(answer["body"])["left"] == "250"


def test_a_wallet_gets_its_account_and_secret(paid: Agent, invoke: Invoke) -> None:
    answer = invoke("purse")

    assert answer["headers"]["Content-Type"] == "application/spsp4+json"
    key = sample("purse")["pathParameters"]["key"]
    account = json.loads(answer["body"])["destination_account"]
    assert account.startswith(f"{paid.settings.own_ilp_address}.purse.{key}.")


def test_paid_subscriptions_are_shown_to_their_key_alone(paid: Agent, invoke: Invoke) -> None:
    paid.ledger.add_peer(PAYER)
    Subscriber(paid, ALICE).subscribe(1500, model=Model.STREAMING)
    asked = sample("paid_subscriptions")
    assert invoke("paid_subscriptions", asked)["statusCode"] == 401
    signed = nostr(paid, ALICE, "GET", SITE + asked["rawPath"])

    answer = invoke("paid_subscriptions", {**asked, "headers": {"authorization": signed}})

    assert answer["statusCode"] == 200
    assert answer["headers"]["Cache-Control"] == "no-store"
    rows = json.loads(answer["body"])["subscriptions"]
    assert [(each["id"], each["credit"]) for each in rows] == [("s1", "500")]
