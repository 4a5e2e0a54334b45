"""Purses by HTTP: pointer and page, quotes, credits, looking, and events that a purse pays for."""

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from importlib import import_module
from typing import Any

import pytest

from farthing.agent.audit import audit
from farthing.context import Agent
from farthing.handlers import runtime
from farthing.ilp.packet import Fulfill
from farthing.ilp.purse import parse_purse_address
from farthing.ilp.spsp import connection_secret
from farthing.nostr.events import public_key_of, sign_event
from farthing.nostr.nip19 import Npub, encode
from farthing.relay.information import relay_information
from tests.ilp.paying import price_of, send
from tests.purses.filling import KEY, OTHER, fill, fill_packet
from tests.relay.world import ALICE, BOB, OWNER, signed

SITE = "https://relay.example"
NPUB = encode(Npub(KEY))
TOKEN = "t" * 43
SPSP = "application/spsp4+json"


@pytest.fixture
def site(agent: Agent) -> Iterator[Agent]:
    settings = replace(agent.settings, web_url=SITE, purse_token=TOKEN)
    site = replace(agent, settings=settings, _parts={})
    runtime.install(site)
    yield site
    runtime.install(None)


def request(
    function: str,
    method: str,
    path: str,
    body: Any = None,
    key: str = "",
    query: str = "",
    **headers: str,
) -> Any:
    handler: Callable[..., Any] = import_module(f"functions.{function}.handler").handler
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    event = {
        "routeKey": f"{method} {path}",
        "rawPath": path,
        "rawQueryString": query,
        "headers": {"host": "elsewhere.example", **named},
        "requestContext": {"http": {"method": method}},
        "body": body if isinstance(body, str) or body is None else json.dumps(body),
        "isBase64Encoded": False,
    }
    if key:
        event["pathParameters"] = {"key": key}
    return handler(event, None)


def json_of(response: Any) -> Any:
    return json.loads(response["body"])


def nostr(
    agent: Agent, secret: bytes, method: str, url: str, body: str = "", **changes: Any
) -> str:
    """An Authorization header by NIP-98."""
    tags = [["u", url], ["method", method]]
    if body:
        tags.append(["payload", sha256(body.encode()).hexdigest()])
    given = {"kind": 27235, "created_at": agent.now, "content": "", "tags": tags, **changes}
    event = sign_event(secret, **given)
    return "Nostr " + base64.b64encode(event.to_json().encode()).decode()


class TestPointer:
    @pytest.mark.parametrize("key", [KEY, NPUB, KEY.upper()])
    def test_answers_wallets_by_spsp(self, site: Agent, key: str) -> None:
        response = request("purse", "GET", f"/purse/{key}", key=key, accept=SPSP)

        assert response["statusCode"] == 200
        assert response["headers"]["Content-Type"] == SPSP
        assert response["headers"]["Cache-Control"] == "no-cache"
        answer = json_of(response)
        assert set(answer) == {"destination_account", "shared_secret", "receipts_enabled"}
        assert answer["receipts_enabled"] is False
        address = parse_purse_address(site.settings.own_ilp_address, answer["destination_account"])
        assert address.key.hex() == KEY
        assert address.token is not None
        owner = bytes.fromhex(site.settings.secret_key)
        secret = connection_secret(owner, address.key, address.token)
        assert base64.b64decode(answer["shared_secret"]) == secret

    def test_gives_each_wallet_a_secret_of_its_own(self, site: Agent) -> None:
        secrets = {
            json_of(request("purse", "GET", "/purse/x", key=KEY, accept=SPSP))["shared_secret"]
            for _ in range(3)
        }
        assert len(secrets) == 3

    def test_of_the_owner_is_well_known(self, site: Agent) -> None:
        answer = json_of(request("purse", "GET", "/.well-known/pay", accept=SPSP))

        own = site.settings.own_ilp_address
        assert parse_purse_address(own, answer["destination_account"]).key == bytes.fromhex(
            public_key_of(OWNER)
        )

    @pytest.mark.parametrize("key", ["x", "npub1", "0" * 64, "f" * 64, encode(Npub("0" * 64))])
    @pytest.mark.parametrize("accept", [SPSP, "text/html"])
    def test_is_not_found_where_there_is_no_key(self, site: Agent, key: str, accept: str) -> None:
        assert request("purse", "GET", "/purse/x", key=key, accept=accept)["statusCode"] == 404


class TestPage:
    @pytest.mark.parametrize("accept", ["text/html,*/*;q=0.8", "", "*/*"])
    def test_shows_people_how_to_fill_the_purse(self, site: Agent, accept: str) -> None:
        response = request("purse", "GET", f"/purse/{NPUB}", key=NPUB, accept=accept)

        assert response["statusCode"] == 200
        assert response["headers"]["Content-Type"].startswith("text/html")
        assert "default-src 'none'" in response["headers"]["Content-Security-Policy"]
        assert f"$relay.example/purse/{NPUB}" in response["body"]
        assert "<script" not in response["body"]

    def test_the_page_shows_no_balance(self, site: Agent) -> None:
        fill(site, 123454321)

        assert "123454321" not in request("purse", "GET", "/purse/x", key=KEY)["body"]

    def test_escapes_what_the_operator_wrote(self, agent: Agent) -> None:
        settings = replace(agent.settings, name="<script>", contact="<b>")
        runtime.install(replace(agent, settings=settings, _parts={}))
        for response in (
            request("purse", "GET", "/purse/x", key=KEY), request("purse", "GET", "/purse"),
        ):  # fmt: skip
            assert "<script>" not in response["body"]
            assert "<b>" not in response["body"]
        runtime.install(None)

    def test_leads_those_whose_key_is_unknown_to_their_purse(self, site: Agent) -> None:
        assert relay_information(site.settings)["payments_url"] == f"{SITE}/purse"
        assert "<form" in request("purse", "GET", "/purse")["body"]

        response = request("purse", "GET", "/purse", query=f"key={NPUB}")

        assert response["statusCode"] == 303
        assert response["headers"]["Location"] == f"{SITE}/purse/{NPUB}"
        assert request("purse", "GET", "/purse", query="key=%3Cx%3E")["statusCode"] == 404

    @pytest.mark.parametrize("query", ["", "key=%3Cb%3E"])
    def test_tells_people_in_words_that_this_is_no_key(self, site: Agent, query: str) -> None:
        """In a browser, where a form has sent it, and with the form to try again."""
        key = "" if query else "npub1wrong"

        response = request("purse", "GET", "/purse", key=key, query=query, accept="text/html")

        assert response["statusCode"] == 404
        assert "Expected a public key as npub" in response["body"]
        assert "<form" in response["body"] and "<b>" not in response["body"]


class TestQuotes:
    @pytest.mark.parametrize("key", [KEY, NPUB])
    @pytest.mark.parametrize("amount", [None, "1000", 1000])
    def test_what_is_quoted_fills_the_purse(self, site: Agent, key: str, amount: Any) -> None:
        body = {"purse": key} if amount is None else {"purse": key, "amount": amount}
        quote = json_of(request("quotes", "POST", "/v1/quotes", body))

        assert quote.get("amount") == (None if amount is None else "1000")
        assert quote["expires_at"].endswith("Z")
        data = base64.b64decode(quote["data"])
        prepare = fill_packet(
            site, 1000, data, destination=quote["destination"],
            condition=bytes.fromhex(quote["condition"]),
        )  # fmt: skip
        assert isinstance(send(site, prepare), Fulfill)
        assert site.purses.get(KEY).left == 1000

    def test_no_two_quotes_are_for_one_payment(self, site: Agent) -> None:
        body = {"purse": KEY}
        found = {json_of(request("quotes", "POST", "/v1/quotes", body))["data"] for _ in range(3)}
        assert len(found) == 3

    @pytest.mark.parametrize(
        "body",
        [{"purse": "x"}, {"purse": 1}, {"purse": "f" * 64}, {"purse": None},
         *({"purse": KEY, "amount": amount} for amount in (0, -1, "0", "-1", 1.5, "1e3", 2**64))],
        ids=str,
    )  # fmt: skip
    def test_a_wrong_question_gets_400(self, site: Agent, body: Any) -> None:
        assert request("quotes", "POST", "/v1/quotes", body)["statusCode"] == 400


class TestCredits:
    def credit(self, body: Any, token: str = TOKEN, key: str = KEY, once: str = "k1") -> Any:
        return request(
            "credits", "POST", "/v1/purses/x/credits", body, key,
            authorization=f"Bearer {token}", idempotency_key=once,
        )  # fmt: skip

    def test_a_repeated_report_is_counted_once(self, site: Agent) -> None:
        for _ in range(2):
            response = self.credit({"amount": "25", "scale": 8})
            assert response["statusCode"] == 201
            assert json_of(response) == {"amount": "250", "scale": 9}

        purse = site.purses.get(KEY)
        assert (purse.left, purse.filled, purse.granted) == (250, 250, 0)
        assert audit(site).differences == []

    def test_an_amount_may_be_a_number(self, site: Agent) -> None:
        assert self.credit({"amount": 250, "scale": 9}, key=NPUB)["statusCode"] == 201
        assert site.purses.get(KEY).left == 250

    def test_another_amount_under_the_same_key_is_a_conflict(self, site: Agent) -> None:
        self.credit({"amount": "250", "scale": 9})
        assert self.credit({"amount": "251", "scale": 9})["statusCode"] == 409

    @pytest.mark.parametrize(
        ("changes", "status"),
        [
            ({"token": "x" * 43}, 401),
            ({"token": ""}, 401),
            ({"key": "nobody"}, 404),
            ({"once": ""}, 400),
            ({"body": {"amount": "-1", "scale": 9}}, 400),
            ({"body": {"amount": "1"}}, 400),
            ({"body": {"amount": True, "scale": 9}}, 400),
            ({"body": "["}, 400),
            ({"body": "x" * 200_000}, 413),
        ],
        ids=str,
    )
    def test_a_wrong_report_is_refused(
        self, site: Agent, changes: dict[str, Any], status: int
    ) -> None:
        given = {"body": {"amount": "250", "scale": 9}, **changes}
        assert self.credit(**given)["statusCode"] == status
        assert site.purses.get(KEY).left == 0

    def test_nobody_has_the_token_that_is_not_set(self, site: Agent) -> None:
        runtime.install(replace(site, settings=replace(site.settings, purse_token="")))
        assert self.credit({"amount": "1", "scale": 9}, token="")["statusCode"] == 401

    def test_a_frozen_purse_takes_none(self, site: Agent) -> None:
        site.purses.freeze(KEY)
        assert self.credit({"amount": "250", "scale": 9})["statusCode"] == 409


class TestLooking:
    URL = f"{SITE}/v1/purses/{NPUB}"

    def look(self, authorization: str) -> Any:
        path = f"/v1/purses/{NPUB}"
        return request("purses", "GET", path, key=NPUB, authorization=authorization)

    @pytest.mark.parametrize("secret", [ALICE, OWNER])
    def test_its_key_and_the_owner_see_what_a_purse_holds(self, site: Agent, secret: bytes) -> None:
        send(site, fill_packet(site, 700))
        site.purses.grant(KEY, 300, site.now_ms + 1, "gift")

        response = self.look(nostr(site, secret, "GET", self.URL))

        assert response["statusCode"] == 200
        purse = json_of(response)
        assert [purse[name] for name in ("left", "filled", "granted", "drawn")] == [
            "1000", "700", "300", "0",
        ]  # fmt: skip
        assert [(each["kind"], each["amount"]) for each in purse["movements"]] == [
            ("granted", "300"), ("filled", "700"),
        ]  # fmt: skip

    def test_others_may_not_see_a_purse(self, site: Agent) -> None:
        assert self.look(nostr(site, BOB, "GET", self.URL))["statusCode"] == 403

    @pytest.mark.parametrize(
        "changes",
        [
            {"url": f"{SITE}/v1/purses/{KEY}"},
            {"url": f"https://elsewhere.example/v1/purses/{NPUB}"},
            {"url": f"{SITE}/v1/purses/{NPUB}?x"},
            {"method": "POST"},
            {"created_at": -300},
            {"created_at": 300},
            {"kind": 22242},
            {"body": "x"},
        ],
        ids=str,
    )
    def test_a_signature_of_another_request_says_nothing(
        self, site: Agent, changes: dict[str, Any]
    ) -> None:
        url, method = changes.get("url", self.URL), changes.get("method", "GET")
        more = {name: value for name, value in changes.items() if name == "kind"}
        more["created_at"] = site.now + changes.get("created_at", 0)
        header = nostr(site, ALICE, method, url, changes.get("body", ""), **more)

        response = self.look(header)

        assert response["statusCode"] == 401
        assert response["headers"]["WWW-Authenticate"] == "Nostr"

    @pytest.mark.parametrize("header", ["", "Bearer x", "Nostr", "Nostr e30=", "Nostr ~"])
    def test_a_malformed_authorization_is_401(self, site: Agent, header: str) -> None:
        assert self.look(header)["statusCode"] == 401

    def test_a_forged_signature_is_none(self, site: Agent) -> None:
        good = nostr(site, BOB, "GET", self.URL)
        event = json.loads(base64.b64decode(good.removeprefix("Nostr ")))
        forged = base64.b64encode(json.dumps({**event, "pubkey": KEY}).encode()).decode()
        assert self.look(f"Nostr {forged}")["statusCode"] == 401


class TestEvents:
    URL = f"{SITE}/v1/events"

    def publish(
        self, agent: Agent, event: Any, secret: bytes | None = ALICE, **changes: Any
    ) -> Any:
        body = event.to_json()
        headers = {}
        if secret is not None:
            url, signed_body = changes.pop("url", self.URL), changes.pop("body", body)
            headers["authorization"] = nostr(agent, secret, "POST", url, signed_body, **changes)
        return request("events", "POST", "/v1/events", body, **headers)

    def test_are_paid_from_the_purse_of_who_signed_the_request(self, site: Agent) -> None:
        note = signed(tags=[["-"]])
        fill(site, 10**6)

        response = self.publish(site, note)

        assert (response["statusCode"], json_of(response)["stored"]) == (200, True)
        assert site.purses.get(KEY).left == 10**6 - price_of(site, note)
        assert audit(site).differences == []
        again = self.publish(site, note)
        assert json_of(again)["message"].startswith("duplicate: ")
        assert site.purses.get(KEY).left == 10**6 - price_of(site, note)

    def test_may_come_in_an_envelope(self, site: Agent) -> None:
        fill(site, 10**6)
        note = signed()
        body = json.dumps({"event": note.as_dict()})
        header = nostr(site, ALICE, "POST", self.URL, body)

        response = request("events", "POST", "/v1/events", body, authorization=header)

        assert (response["statusCode"], json_of(response)["event_id"]) == (200, note.id)
        quote = request("quotes", "POST", "/v1/quotes", signed(content="bare").to_json())
        assert int(json_of(quote)["price"]) > 0

    def test_a_purse_pays_for_another_authors_event(self, site: Agent) -> None:
        fill(site, 10**6, OTHER)
        assert self.publish(site, signed(), BOB)["statusCode"] == 200
        assert site.purses.get(OTHER).left < 10**6

    @pytest.mark.parametrize("secret", [None, ALICE, BOB])
    def test_without_enough_are_answered_with_price_and_purse(
        self, site: Agent, secret: bytes | None
    ) -> None:
        note = signed()
        response = self.publish(site, note, secret)

        assert response["statusCode"] == 402
        offer = json_of(response)
        assert offer["price"] == str(price_of(site, note))
        assert offer["condition"]
        payer = encode(Npub(public_key_of(secret or ALICE)))
        assert offer["purse"]["url"] == f"{SITE}/purse/{payer}"
        assert site.events.get(note.id) is None

    def test_nobodys_purse_pays_for_a_request_without_a_signature(self, site: Agent) -> None:
        fill(site, 10**6)
        assert self.publish(site, signed(), None)["statusCode"] == 402
        assert site.purses.get(KEY).left == 10**6

    @pytest.mark.parametrize(
        "changes", [{"url": f"{SITE}/v1/quotes"}, {"body": "{}"}, {"created_at": 1}], ids=str
    )
    def test_a_signature_of_another_request_is_refused(
        self, site: Agent, changes: dict[str, Any]
    ) -> None:
        fill(site, 10**6)
        assert self.publish(site, signed(), **changes)["statusCode"] == 401
        assert site.purses.get(KEY).left == 10**6

    def test_an_older_version_is_a_conflict(self, site: Agent) -> None:
        fill(site, 10**6)
        assert self.publish(site, signed(kind=0, created_at=site.now))["statusCode"] == 200
        left = site.purses.get(KEY).left

        assert self.publish(site, signed(kind=0, created_at=site.now - 1))["statusCode"] == 409

        assert site.purses.get(KEY).left == left

    def test_a_protected_one_needs_its_authors_signature(self, site: Agent) -> None:
        fill(site, 10**6, OTHER)
        protected = signed(tags=[["-"]])

        unsigned = self.publish(site, protected, None)
        assert unsigned["statusCode"] == 401
        assert unsigned["headers"]["WWW-Authenticate"] == "Nostr"
        assert self.publish(site, protected, BOB)["statusCode"] == 403

        assert site.purses.get(OTHER).left == 10**6

    def test_nobody_is_told_to_send_a_packet_that_has_no_room(self, site: Agent) -> None:
        response = self.publish(site, signed(content="x" * 40_000))

        assert response["statusCode"] == 402
        offer = json_of(response)
        assert offer["purse"]["url"] == f"{SITE}/purse/{NPUB}"
        assert not {"destination", "endpoint", "condition"} & offer.keys()

    def test_are_refused_by_policies_as_ever(self, site: Agent) -> None:
        fill(site, 10**6)
        response = self.publish(site, signed(tags=[["expiration", "1"]]))
        assert response["statusCode"] == 400
