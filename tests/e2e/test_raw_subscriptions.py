"""Paid subscriptions by a client of its own code, at a running server: every row of the page that
says what is sold, and what is refused."""

import json
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any

import pytest

from farthing.nostr.events import sign_event
from tests.e2e.paying import command, free_port, http, token_of
from tests.e2e.raw_subscriber import RawSubscriber, Reply, envelope, token_fields
from tests.e2e.relay_process import RelayProcess

AUTHOR, CLIENT, NEWCOMER = (bytes([number] * 32) for number in (11, 12, 14))
ADDRESS = "g.raw"
_kinds = iter(range(1100, 9999))


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayProcess]:
    folder = tmp_path_factory.mktemp("raw") / "relay"
    relay = RelayProcess(
        folder, port=free_port(), ilp_address=ADDRESS, price_per_byte=0, upkeep_seconds=0,
        sweep_seconds=1, subscription_max=40, requests_per_second=0,
    ).start()  # fmt: skip
    yield relay
    assert command(relay, "audit").stdout.splitlines()[-1] == "0 differences"
    relay.stop()
    relay.check_log()


@pytest.fixture(scope="module")
def client(relay: RelayProcess) -> RawSubscriber:
    return RawSubscriber(relay.port, token_of(relay), relay.pubkey, ADDRESS, CLIENT)


@pytest.fixture
def kind() -> int:
    return next(_kinds)


@pytest.fixture
def id(kind: int) -> str:
    return f"s{kind}"


@pytest.fixture
def publish(relay: RelayProcess, kind: int) -> Callable[..., list[str]]:
    made = iter(range(10**6))

    def publish(number: int = 1, content: str = "") -> list[str]:
        found = []
        for at in (next(made) for _ in range(number)):
            event = sign_event(AUTHOR, kind=kind, content=f"{content}{at}", tags=[],
                               created_at=1_700_000_000 + at)  # fmt: skip
            body = json.dumps(event.as_dict()).encode()
            reply = http("POST", f"{relay.http}/v1/events", body, Content_Type="application/json")
            assert reply.status == 200, reply.data
            found.append(event.id)
        return found

    return publish


Publish = Callable[..., list[str]]


def fulfilled(reply: Reply) -> Any:
    assert reply.code == "", (reply.code, reply.text)
    return reply.json


class TestEnvelope:
    @pytest.mark.parametrize("data", [
        b"\x01", b"\x02\x02\x00\x02{}", b"\x00\x02\x00\x02{}", b"\x01\x00\x00\x02{}",
        b"\x01\x0a\x00\x02{}", b"\x01\x02\x00\x03{}", b"\x01\x02\x00\x01{}",
    ])  # fmt: skip
    def test_a_wrong_header_is_f06(self, client: RawSubscriber, data: bytes) -> None:
        assert client.post(data).code == "F06"

    @pytest.mark.parametrize("body", [
        b"", b"{}", b"[]", b"\xff", b'{"payment":{},"nostr":{},"metadata":{}}', b"null",
    ])  # fmt: skip
    def test_a_wrong_body_is_f00(self, client: RawSubscriber, body: bytes) -> None:
        assert client.post(envelope("REQ", body)).code == "F00"

    @pytest.mark.parametrize(("payment", "metadata"), [
        ({"amount": "01"}, {}), ({"amount": 5}, {}), ({"amount": "-1"}, {}),
        ({"amount": str(2**64)}, {}), ({"currency": "US D"}, {}), ({"currency": ""}, {}),
        ({"currency": "A" * 17}, {}), ({"model": "gratis"}, {}), ({"purpose": "x"}, {}),
        ({"feeSchedule": {"eventFee": 5}}, {}),
        ({}, {"ttl": 59}), ({}, {"ttl": 86401}), ({}, {"ttl": 60.0}), ({}, {"ttl": "60"}),
        ({}, {"priority": 256}), ({}, {"priority": -1}), ({}, {"sender": "x"}),
        ({}, {"delivery": "post"}), ({}, {"delivery": "push"}), ({}, {"replyTo": "not an address"}),
        ({}, {"pull": 0}), ({}, {"pull": 51}), ({}, {"after": "x:1"}), ({}, {"after": 1}),
        ({}, {"window": 0}), ({}, {"window": 11}), ({}, {"propagate": {"hops": 4, "budget": "1"}}),
        ({}, {"timestamp": int(time.time()) - 4000}), ({}, {"timestamp": int(time.time()) + 4000}),
        ({}, {"timestamp": "now"}),
    ])  # fmt: skip
    def test_a_wrong_field_is_f00(
        self, client: RawSubscriber, id: str, payment: dict[str, Any], metadata: dict[str, Any]
    ) -> None:
        reply = client.req(id, [{"kinds": [1]}], 1160, payment=payment, **metadata)
        assert reply.code == "F00"
        assert reply.text == reply.json["message"]
        assert reply.text.startswith(f"[{reply.json['error']}] ")

    @pytest.mark.parametrize("filters", [
        "x", [1], [{"kinds": ["1"]}], [{"unknown": 1}], [{"#ab": ["x"]}], [{"authors": ["short"]}],
        [{"kinds": [20001]}], [{"kinds": [20001, 29999]}],
    ])  # fmt: skip
    def test_wrong_filters_are_filter_invalid(
        self, client: RawSubscriber, id: str, filters: Any
    ) -> None:
        nostr = {"subscriptionId": id, "filters": filters}
        reply = client.post(envelope("REQ", client.body("REQ", nostr, {}, {})), 2000)
        assert reply.error == ("F00", "filter_invalid")

    @pytest.mark.parametrize("id", ["", "x" * 65, 7, None])
    def test_an_id_of_a_wrong_form_is_rejected(self, client: RawSubscriber, id: Any) -> None:
        nostr = {"subscriptionId": id, "filters": [{"kinds": [1]}]}
        assert client.post(envelope("REQ", client.body("REQ", nostr, {}, {})), 1160).code == "F00"

    def test_the_type_within_agrees_with_the_header(self, client: RawSubscriber, id: str) -> None:
        nostr = {"subscriptionId": id, "filters": [{"kinds": [1]}]}
        assert client.post(envelope("REQ", client.body("CLOSE", nostr, {}, {})), 1160).code == "F00"

    def test_other_names_for_the_model_and_unknown_fields(
        self, client: RawSubscriber, id: str
    ) -> None:
        payment = {"paymentModel": "streaming", "surprise": {"x": 1}}
        answer = fulfilled(client.req(id, [{"kinds": [1]}], 1010, payment=payment, later=True))
        assert answer["model"] == "streaming"

    @pytest.mark.parametrize("name", ["NOTICE", "EOSE", "OK", "AUTH", "CLOSED"])
    def test_messages_of_relays_are_awaited_by_nobody(
        self, client: RawSubscriber, name: str
    ) -> None:
        nostr = {"subscriptionId": "x", "message": "m", "reason": "r", "challenge": "0" * 64,
                 "eventId": "0" * 64, "accepted": True}  # fmt: skip
        assert client.post(envelope(name, client.body(name, nostr, {}, {}))).code == "F06"

    def test_a_delivery_that_nobody_awaits(self, client: RawSubscriber) -> None:
        event = sign_event(AUTHOR, kind=1, content="x", created_at=1_700_000_000, tags=[])
        nostr = {"subscriptionId": "nobody's", "event": event.as_dict()}
        data = envelope("EVENT", client.body("EVENT", nostr, {}, {"position": "n:1"}))
        assert client.post(data, preimage=sha256(data).digest()).code == "F06"
        data = envelope("EVENT", client.body("EVENT", nostr, {}, {}))
        assert client.post(data, preimage=client.delivery_fulfillment(data)).code == "F06"


class TestPrices:
    @pytest.mark.parametrize(("filters", "model", "least", "fee"), [
        ([{"kinds": [1]}], "one_time", 1000 + 60 + 100, 0),
        ([{"kinds": [1, 1, 2], "limit": 500}], "one_time", 1060 + 100 * (2 + 100), 0),
        ([{"ids": ["a" * 64], "#t": ["x", "y"]}, {"authors": ["b" * 64], "limit": 7}], "one_time",
         1060 + 100 * (3 + 8), 0),
        ([{"kinds": [1]}], "streaming", 1010, 10),
        ([{"kinds": [1]}], "hybrid", 10005, 5),
    ])  # fmt: skip
    def test_less_than_the_least_amount_is_rejected_with_the_price(
        self, client: RawSubscriber, id: str, filters: Any, model: str, least: int, fee: int
    ) -> None:
        refused = client.req(id, filters, least - 1, model=model)
        assert refused.error == ("F04", "payment_insufficient")
        said = refused.json
        assert (said["price"], said["received"]) == (str(least), str(least - 1))
        assert (said["asset_code"], said["asset_scale"]) == ("USD", 9)
        answer = fulfilled(client.req(id, filters, least + 3, model=model))
        assert (answer["price"], answer["eventFee"]) == (str(least - fee), str(fee))
        assert (answer["credit"], answer["status"]) == (str(fee + 3), "pending")
        assert fulfilled(client.close(id)) == {
            "subscriptionId": id, "closed": True, "credit": str(fee + 3),
        }  # fmt: skip

    def test_a_free_subscription_takes_no_money(
        self, client: RawSubscriber, kind: int, id: str
    ) -> None:
        filters = [{"kinds": [kind]}]
        assert client.req(id, filters, 1, model="free").error[0] == "F03"
        assert client.req(id, filters, 0, model="free", ttl=3601).error == ("F99", "limit_exceeded")
        answer = fulfilled(client.req(id, filters))
        assert (answer["model"], answer["price"], answer["credit"]) == ("free", "0", "0")
        assert client.req(id, [], 1).error[0] == "F03"

    def test_the_amount_and_fee_schedule_decide_the_model(
        self, client: RawSubscriber, id: str
    ) -> None:
        filters, fees = [{"kinds": [1]}], {"feeSchedule": {"eventFee": "5"}}
        assert fulfilled(client.req(id, filters, 10005, payment=fees))["model"] == "hybrid"
        assert fulfilled(client.req(id + "o", filters, 1160))["model"] == "one_time"

    def test_a_fee_above_the_clients_ceiling_is_rejected(
        self, client: RawSubscriber, id: str
    ) -> None:
        filters = [{"kinds": [1]}]
        for name, most in (("baseRelayFee", 999), ("eventFee", 9)):
            schedule = {"feeSchedule": {name: str(most)}}
            refused = client.req(id, filters, 5000, model="streaming", payment=schedule)
            assert refused.error == ("F04", "payment_insufficient")
        schedule = {"feeSchedule": {"baseRelayFee": "9000", "eventFee": "90"}}
        answer = fulfilled(client.req(id, filters, 5000, model="streaming", payment=schedule))
        assert (answer["price"], answer["eventFee"], answer["credit"]) == ("1000", "10", "4000")

    @pytest.mark.parametrize("model", ["free", "one_time", "streaming", "hybrid"])
    def test_the_fees_are_the_same_everywhere(
        self, relay: RelayProcess, client: RawSubscriber, id: str, model: str
    ) -> None:
        filters = [{"kinds": [1], "limit": 3}]
        document = http("GET", relay.http, Accept="application/nostr+json").json()
        stated = {each["model"]: each for each in document["fees"]["paid_subscription"]}[model]
        body = json.dumps({"subscription": {"model": model, "filters": filters, "ttl": 600}})
        quoted = http("POST", f"{relay.http}/v1/quotes", body.encode()).json()
        answer = fulfilled(client.req(id, filters, int(quoted["least"]), model=model, ttl=600))
        assert (answer["price"], answer["eventFee"]) == (quoted["price"], quoted["event_fee"])
        assert stated["event_fee"] == int(answer["eventFee"])
        more = stated.get("per_minute", 0) * 10 + stated.get("per_complexity", 0) * 4
        assert stated["amount"] + more == int(answer["price"])


class TestPulling:
    def test_stored_events_eose_and_later_ones(
        self, client: RawSubscriber, relay: RelayProcess, kind: int, id: str, publish: Publish
    ) -> None:
        stored = publish(3)
        began = int(time.time())
        first = client.req(id, [{"kinds": [kind]}], 2000, model="streaming", pull=2)
        answer = fulfilled(first)
        assert (first.ids(), first.kinds()) == (stored[:2], ["EVENT", "EVENT"])
        assert (answer["status"], answer["eventCount"], answer["position"]) == ("pending", 3, "s:2")
        assert (answer["credit"], answer["more"]) == ("980", True)
        assert abs(answer["expiresAt"] - 1000 * (began + 3600)) <= 5000
        entry = answer["messages"][0]
        assert entry["payment"] == {"amount": "10", "currency": "USD", "purpose": "event_publish"}
        assert entry["nostr"]["subscriptionId"] == id
        assert began <= entry["metadata"]["timestamp"] <= began + 5

        second = client.req(id, pull=50)
        assert (second.ids(), second.kinds()) == (stored[2:], ["EVENT", "EOSE"])
        assert second.json["status"] == "active"
        eose = second.json["messages"][1]
        assert eose["metadata"]["eventCount"] == 3
        assert eose["metadata"]["credit"] == "970"
        secret = bytes.fromhex((relay.data / "secret-key").read_text().strip())
        assert eose["payment"]["amount"] == "0"
        later = publish(2)
        third = client.req(id, pull=50)
        assert (third.ids(), third.json["credit"]) == (later, "950")
        sealed = token_fields(third.json["resumptionToken"], relay_secret=secret)
        assert (sealed["o"], sealed["s"]) == (f"key:{client.key}", id)
        assert (sealed["p"], 1000 * sealed["e"]) == (third.json["position"], answer["expiresAt"])
        assert client.req(id, pull=50).json["messages"] == []

    def test_after_goes_back_for_nothing_and_never_ahead(
        self, client: RawSubscriber, kind: int, id: str, publish: Publish
    ) -> None:
        stored = publish(3)
        client.req(id, [{"kinds": [kind]}], 1500, model="streaming", pull=2)
        again = client.req(id, pull=50, after="s:1")
        assert (again.ids(), again.json["credit"]) == (stored[1:], "470")
        ahead = client.req(id, pull=50, after="n:99999999")
        assert (ahead.ids(), ahead.json["credit"]) == ([], "470")

    def test_without_a_pull_nothing_is_handed_out(
        self, client: RawSubscriber, kind: int, id: str, publish: Publish
    ) -> None:
        publish(1)
        answer = fulfilled(client.req(id, [{"kinds": [kind]}], 1500, model="streaming"))
        assert (answer["messages"], answer["more"]) == ([], False)
        status = fulfilled(client.req(id))
        assert (status["credit"], status["status"]) == ("500", "pending")

    def test_whole_messages_while_they_fit_and_what_fits_no_packet(
        self, client: RawSubscriber, kind: int, id: str, publish: Publish
    ) -> None:
        small, (large,), last = publish(1), publish(1, "x" * 33_000), publish(2, "y" * 20_000)
        first = client.req(id, [{"kinds": [kind]}], 1500, model="streaming", pull=50)
        assert (first.ids(), first.kinds()) == ([*small, last[0]], ["EVENT", "NOTICE", "EVENT"])
        notice = first.json["messages"][1]["nostr"]["message"]
        assert notice.startswith("[relay_error] ") and large in notice
        assert first.json["more"] is True
        second = client.req(id, pull=50)
        assert (second.ids(), second.json["credit"], second.json["more"]) == (
            last[1:],
            "470",
            False,
        )

    def test_when_credit_runs_out_the_subscription_is_closed(
        self, relay: RelayProcess, kind: int, id: str, publish: Publish
    ) -> None:
        client = RawSubscriber(relay.port, token_of(relay), relay.pubkey, ADDRESS, bytes([16] * 32))
        stored = publish(3)
        client.req(id, [{"kinds": [kind]}], 1025, model="streaming")
        reply = client.req(id, pull=50)
        assert reply.ids() == stored[:2]
        assert reply.kinds() == ["EVENT", "EVENT", "NOTICE", "CLOSED"]
        assert reply.json["messages"][2]["nostr"]["message"].startswith("[payment_insufficient] ")
        assert (reply.json["status"], reply.json["credit"]) == ("closed", "0")
        assert client.req(id, pull=5).error == ("F99", "subscription_not_found")
        assert fulfilled(client.close(id))["credit"] == "5"

    def test_one_notice_when_little_is_left(
        self, relay: RelayProcess, kind: int, id: str, publish: Publish
    ) -> None:
        """The client's key is new: nothing has come into its purse from ended subscriptions."""
        client = RawSubscriber(relay.port, token_of(relay), relay.pubkey, ADDRESS, NEWCOMER)
        publish(2)
        client.req(id, [{"kinds": [kind]}], 1110, model="streaming")
        assert client.req(id, pull=1).kinds() == ["EVENT"]  # 100 are left: ten fees
        assert client.req(id, pull=1).kinds() == ["EVENT", "EOSE", "NOTICE"]
        publish(1)
        assert client.req(id, pull=1).kinds() == ["EVENT"]

    def test_a_free_subscription_ends_after_its_free_events(
        self, client: RawSubscriber, kind: int, id: str, publish: Publish
    ) -> None:
        stored = publish(101)
        filters = [{"kinds": [kind], "limit": 200}]
        first = client.req(id, filters, model="free", pull=50)
        assert first.json["expiresAt"] <= 1000 * (int(time.time()) + 3600)
        second, third = client.req(id, pull=50), client.req(id, pull=50)
        assert [*first.ids(), *second.ids()] == stored[:100]
        assert (third.kinds(), third.json["status"]) == (["NOTICE", "CLOSED"], "closed")


class TestMoneyAndTime:
    def test_a_top_up_adds_credit_and_time(self, client: RawSubscriber, kind: int, id: str) -> None:
        filters = [{"kinds": [kind, 7]}]
        opened = fulfilled(client.req(id, filters, 1500, model="streaming", ttl=600))
        assert fulfilled(client.req(id, [], 70))["credit"] == "570"
        equal = [{"kinds": [7, kind]}]
        assert fulfilled(client.req(id, equal, 30))["credit"] == "600"
        longer = fulfilled(client.req(id, [], 0, ttl=60))
        assert longer["expiresAt"] == opened["expiresAt"] + 60_000
        most = fulfilled(client.req(id, [], 0, ttl=86400))
        assert most["expiresAt"] <= 1000 * (int(time.time()) + 86400)
        assert most["credit"] == "600"

    def test_time_of_one_time_costs(self, client: RawSubscriber, id: str) -> None:
        opened = fulfilled(client.req(id, [{"kinds": [1]}], 1111, ttl=600))
        assert (opened["price"], opened["credit"]) == ("1110", "1")
        refused = client.req(id, [], 8, ttl=659)
        assert refused.error == ("F04", "payment_insufficient")
        more = fulfilled(client.req(id, [], 12, ttl=659))
        assert (more["credit"], more["expiresAt"]) == ("3", opened["expiresAt"] + 659_000)

    def test_other_filters_cost_the_full_price_and_bring_stored_events_again(
        self, client: RawSubscriber, kind: int, id: str, publish: Publish
    ) -> None:
        stored = publish(2)
        client.req(id, [{"kinds": [kind]}], 1500, model="streaming", pull=50)
        other = [{"kinds": [kind, kind + 1]}]
        assert client.req(id, other, 999, model="streaming").error[0] == "F04"
        again = client.req(id, other, 1000, model="streaming", pull=50)
        assert (again.ids(), again.kinds()) == (stored, ["EVENT", "EVENT", "EOSE"])
        assert again.json["credit"] == "460"

    def test_a_purse_is_drawn_and_filled(
        self, relay: RelayProcess, kind: int, id: str, publish: Publish
    ) -> None:
        rich = RawSubscriber(relay.port, token_of(relay), relay.pubkey, ADDRESS, bytes([13] * 32))
        assert command(relay, "purse", "grant", rich.key, "1200").returncode == 0
        publish(3)
        reply = rich.req(id, [{"kinds": [kind]}], 1010, model="streaming", pull=50)
        assert reply.kinds() == ["EVENT", "EVENT", "EVENT", "EOSE"]
        assert reply.json["credit"] == str(10 + 1000 - 30)
        assert fulfilled(rich.close(id))["credit"] == "980"
        assert "1180" in command(relay, "purse", "show", rich.key).stdout


class TestReplays:
    def test_the_same_message_has_its_effect_once(
        self, client: RawSubscriber, kind: int, id: str, publish: Publish
    ) -> None:
        stored = publish(2)
        data = client.req_data(id, [{"kinds": [kind]}], model="streaming", pull=50)
        first, again = client.post(data, 1500), client.post(data, 1500)
        assert first.ids() == again.ids() == stored
        assert first.json["credit"] == again.json["credit"] == "480"
        pull = client.req_data(id, pull=50)
        later = publish(1)
        assert client.post(pull).ids() == client.post(pull).ids() == later
        assert client.req(id).json["credit"] == "470"

    def test_from_another_peer_it_is_refused(
        self, relay: RelayProcess, client: RawSubscriber, id: str
    ) -> None:
        added = command(relay, "peers", "add", f"peer-{id}", "--max-balance", "1000000")
        token = next(word for word in added.stdout.split() if len(word) >= 43)
        data = client.req_data(id, [{"kinds": [1]}])
        assert client.post(data, 1160).code == ""
        assert client.post(data, 1160, token=token).code == "F99"

    def test_an_older_message_is_refused(self, client: RawSubscriber, id: str) -> None:
        now = int(time.time())
        client.req(id, [{"kinds": [1]}], 1160, timestamp=now)
        assert client.close(id, timestamp=now - 1).code == "F99"
        assert client.req(id, [], 5, timestamp=now - 1).code == "F99"
        assert client.close(id, timestamp=now).code == ""


class TestEnds:
    def test_nobody_reaches_anothers_subscription(
        self, relay: RelayProcess, client: RawSubscriber, id: str
    ) -> None:
        other = RawSubscriber(relay.port, token_of(relay), relay.pubkey, ADDRESS, bytes([14] * 32))
        client.req(id, [{"kinds": [1]}], 1160)
        assert other.close(id).error == ("F99", "subscription_not_found")
        assert other.req(id).error == ("F99", "subscription_not_found")
        forged = envelope("CLOSE", other.body("CLOSE", {"subscriptionId": id}, {},
                                              {"sender": client.key}))  # fmt: skip
        assert other.post(forged).error[0] == "F05"
        assert fulfilled(client.req(id))["status"] == "pending"

    def test_without_a_key_the_peer_is_the_owner(self, client: RawSubscriber, id: str) -> None:
        data = client.req_data(id, [{"kinds": [1]}], sender=None)
        assert client.post(data, 1160, preimage=sha256(data).digest()).code == ""
        assert client.req(id).error == ("F99", "subscription_not_found")
        data = client.req_data(id, sender=None)
        assert client.post(data, preimage=sha256(data).digest()).json["status"] == "pending"

    def test_close_returns_the_credit_once(self, client: RawSubscriber, id: str) -> None:
        client.req(id, [{"kinds": [1]}], 1500, model="streaming")
        assert client.close(id, 1).error[0] == "F03"
        assert fulfilled(client.close(id))["credit"] == "500"
        assert fulfilled(client.close(id))["credit"] == "500"
        assert fulfilled(client.req(id))["status"] == "closed"
        assert client.req(id, [], 50).error == ("F99", "subscription_not_found")

    def test_an_unknown_condition_is_rejected(self, client: RawSubscriber, id: str) -> None:
        data = client.req_data(id, [{"kinds": [1]}])
        assert client.post(data, 1160, preimage=b"\x01" * 32).code == "F05"

    def test_a_token_resumes_only_its_owners_subscription(
        self, client: RawSubscriber, relay: RelayProcess, kind: int, id: str, publish: Publish
    ) -> None:
        filters = [{"kinds": [kind]}]
        publish(2)
        token = client.req(id, filters, 1500, model="streaming", pull=50).json["resumptionToken"]
        client.close(id)
        missed = publish(2)
        resumed = client.req(id + "r", filters, 1500, model="streaming", pull=50, token=token)
        assert (resumed.ids(), resumed.kinds()) == (missed, ["EVENT", "EVENT", "EOSE"])
        other = RawSubscriber(relay.port, token_of(relay), relay.pubkey, ADDRESS, bytes([14] * 32))
        for bad in (token[:-2] + "AA", "", "x", token + "="):
            reply = client.req(id + "x", filters, 1500, model="streaming", token=bad)
            assert reply.error == ("F00", "token_invalid")
        stolen = other.req(id, filters, 1500, model="streaming", token=token)
        assert stolen.error == ("F00", "token_invalid")

    def test_more_subscriptions_than_the_limit_are_rejected(
        self, relay: RelayProcess, id: str
    ) -> None:
        many = RawSubscriber(relay.port, token_of(relay), relay.pubkey, ADDRESS, bytes([15] * 32))
        for number in range(40):
            assert many.req(f"{id}-{number}", [{"kinds": [1]}]).code == ""
        assert many.req(f"{id}-40", [{"kinds": [1]}]).error == ("F99", "limit_exceeded")
        many.close(f"{id}-0")
        assert many.req(f"{id}-40", [{"kinds": [1]}]).code == ""

    def test_a_pull_with_a_ttl_keeps_the_subscription_active(
        self, client: RawSubscriber, id: str
    ) -> None:
        client.req(id, [{"kinds": [1]}], 1500, model="streaming", ttl=60)
        assert client.req(id, ttl=60, pull=1).json["status"] == "active"


class TestOthers:
    def test_count_is_free_and_counts_stored_events(
        self, client: RawSubscriber, kind: int, publish: Publish
    ) -> None:
        publish(3)
        assert fulfilled(client.count([{"kinds": [kind]}])) == {"subscriptionId": "c", "count": 3}
        assert client.count([{"kinds": [kind]}], 1).error[0] == "F03"
        assert client.count([]).error == ("F00", "filter_invalid")

    def test_an_event_in_an_envelope_is_stored(self, client: RawSubscriber, kind: int) -> None:
        event = sign_event(CLIENT, kind=kind, content="mine", created_at=int(time.time()), tags=[])
        data = envelope("EVENT", client.body("EVENT", {"event": event.as_dict()}, {}, {}))
        expected = {"eventId": event.id, "accepted": True, "message": ""}
        assert fulfilled(client.post(data)) == expected
        assert fulfilled(client.count([{"kinds": [kind]}]))["count"] == 1
        broken = {**event.as_dict(), "content": "altered"}
        data = envelope("EVENT", client.body("EVENT", {"event": broken}, {}, {}))
        assert client.post(data).code == "F00"

    def test_addresses_that_are_not_proven(self, client: RawSubscriber, id: str) -> None:
        for address, code in ((ADDRESS, "F99"), (f"{ADDRESS}.x", "F99"), ("g.nowhere", "F99")):
            reply = client.req(id, [{"kinds": [1]}], 1160, replyTo=address)
            assert reply.code == code
        assert client.req(id).error == ("F99", "subscription_not_found")
