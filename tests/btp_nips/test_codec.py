"""Envelopes: the vectors, every rule of a field at its edge, header errors apart from body ones."""

import copy
from hashlib import sha256
from struct import pack
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farthing.btp_nips.codec import (
    PAYLOAD_MAX,
    TooLarge,
    check_timestamp,
    decode,
    decode_entry,
    encode,
    write,
)
from farthing.btp_nips.errors import (
    FilterRefused,
    InvalidBody,
    InvalidHeader,
    MessageRefused,
    StaleTimestamp,
)
from farthing.btp_nips.messages import (
    Ceilings,
    Close,
    Delivery,
    EventMessage,
    Message,
    MessageType,
    Metadata,
    Notice,
    Payment,
    Propagation,
    Purpose,
    Req,
    delivered_for,
)
from farthing.btp_nips.models import Model
from farthing.btp_nips.positions import live, stored
from farthing.nostr.events import sign_event
from farthing.nostr.filters import Filter
from tests.btp_nips import vectors
from tests.btp_nips.strategies import MESSAGE

KEY = vectors.CLIENT


def envelope(body: Any, kind: int = 2, version: int = 1) -> bytes:
    octets = body if isinstance(body, bytes) else orjson.dumps(body)
    return pack(">BBH", version, kind, len(octets)) + octets


def changed(path: str, value: Any) -> dict[str, Any]:
    """The REQ of the vectors with one field set."""
    body = copy.deepcopy(orjson.loads(vectors.REQ_BODY))
    *parents, name = path.split(".")
    target = body
    for parent in parents:
        target = target.setdefault(parent, {})
    target[name] = value
    return body


def without(path: str) -> dict[str, Any]:
    body = changed(path, None)
    *parents, name = path.split(".")
    target = body
    for parent in parents:
        target = target[parent]
    del target[name]
    return body


def req(path: str, value: Any) -> Req:
    message = decode(envelope(changed(path, value)))
    assert isinstance(message, Req)
    return message


class TestVectors:
    def test_the_req_of_the_vectors_is_read(self) -> None:
        assert decode(vectors.REQ) == Req(
            "s1",
            (Filter(kinds=frozenset({1}), authors=frozenset({KEY}), limit=2),),
            Payment(1460, "USD", Purpose.SUBSCRIPTION, Model.ONE_TIME),
            Metadata(1733414400, ttl=3600, sender=KEY, delivery=Delivery.PULL),
        )
        assert sha256(vectors.REQ).hexdigest() == vectors.REQ_SHA256

    def test_close_is_read_and_written(self) -> None:
        close = Close("s1", Payment(0, "USD", Purpose.RELAY_FEE), Metadata(1733414401, sender=KEY))

        assert decode(vectors.CLOSE) == close
        assert encode(close) == vectors.CLOSE

    def test_req_is_written_in_the_same_order_of_fields(self) -> None:
        written = encode(decode(vectors.REQ))

        # Only the filter's own keys come in the relay's order.
        assert written[:4] == vectors.REQ[:4]
        assert orjson.loads(written[4:]) == orjson.loads(vectors.REQ_BODY)
        assert written.split(b'"filters"')[0] == vectors.REQ.split(b'"filters"')[0]
        assert written.split(b"}]},")[-1] == vectors.REQ.split(b"}]},")[-1]


class TestRoundTrip:
    @settings(max_examples=200)
    @given(MESSAGE)
    def test_what_is_written_is_read_again(self, message: Message) -> None:
        assert decode(encode(message)) == message

    @settings(max_examples=50)
    @given(MESSAGE)
    def test_an_entry_of_an_answer_says_the_same(self, message: Message) -> None:
        assert decode_entry(orjson.loads(write(message).entry)) == message

    @given(st.binary(max_size=100))
    def test_garbage_is_refused(self, octets: bytes) -> None:
        with pytest.raises(MessageRefused):
            decode(octets)


class TestHeader:
    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"\x01",
            b"\x01\x02\x00",
            envelope(vectors.REQ_BODY.encode(), version=0),
            envelope(vectors.REQ_BODY.encode(), version=2),
            envelope(vectors.REQ_BODY.encode(), kind=0),
            envelope(vectors.REQ_BODY.encode(), kind=10),
            envelope(vectors.REQ_BODY.encode(), kind=255),
            vectors.REQ[:-1],
            vectors.REQ + b" ",
            b"\x01\x02\xff\xff" + b" " * 65535,
        ],
    )
    def test_a_wrong_header_is_f06(self, data: bytes) -> None:
        with pytest.raises(InvalidHeader) as refused:
            decode(data)

        assert refused.value.code == "F06"

    def test_a_payload_above_the_largest_is_refused(self) -> None:
        room = PAYLOAD_MAX - len(vectors.REQ_BODY)
        assert isinstance(decode(envelope(vectors.REQ_BODY.encode() + b" " * room)), Req)
        with pytest.raises(InvalidHeader):
            decode(envelope(vectors.REQ_BODY.encode() + b" " * (room + 1)))

    def test_what_is_too_large_is_not_written(self) -> None:
        notice = Notice("x" * 32_700, Payment(), Metadata(0))
        with pytest.raises(TooLarge):
            encode(notice)


class TestBody:
    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"{",
            b"[]",
            b"null",
            b"\xff",
            b'{"a":NaN}',
            vectors.REQ_BODY.encode("utf-16-le"),
            b"[" * 5000,
            {},
            without("payment"),
            without("nostr"),
            without("metadata"),
            changed("payment", []),
            changed("nostr", "REQ"),
            changed("metadata", None),
        ],
    )
    def test_a_body_that_is_no_message_is_f00(self, body: Any) -> None:
        with pytest.raises(InvalidBody) as refused:
            decode(envelope(body))

        assert refused.value.code == "F00"
        assert orjson.loads(refused.value.data) == {
            "error": "body_invalid",
            "message": f"[body_invalid] {refused.value.text}",
        }

    def test_unknown_fields_are_ignored(self) -> None:
        body = changed("x", 1) | {"version": 1}
        for part in ("payment", "nostr", "metadata"):
            body[part]["unknown"] = {"deep": [1]}

        assert decode(envelope(body)) == decode(vectors.REQ)

    @pytest.mark.parametrize("kind", MessageType)
    def test_the_type_agrees_with_the_header_where_it_is_there(self, kind: MessageType) -> None:
        if kind is MessageType.REQ:
            assert decode(envelope(without("nostr.type"))) == decode(vectors.REQ)
            return
        with pytest.raises(InvalidBody, match="type"):
            decode(envelope(changed("nostr.type", kind.name)))

    ACCEPTED = (
        ("payment.amount", "0", lambda m: m.payment.amount == 0),
        ("payment.amount", str(2**64 - 1), lambda m: m.payment.amount == 2**64 - 1),
        ("payment.currency", "USD/1e9", lambda m: m.payment.currency == "USD/1e9"),
        ("payment.model", "hybrid", lambda m: m.payment.model is Model.HYBRID),
        ("payment.purpose", "tip", lambda m: m.payment.purpose is Purpose.TIP),
        (
            "payment.feeSchedule",
            {"baseRelayFee": "7", "eventFee": "0"},
            lambda m: m.payment.ceilings == Ceilings(7, 0),
        ),
        ("payment.feeSchedule", {}, lambda m: m.payment.ceilings == Ceilings()),
        ("nostr.subscriptionId", "ä" * 64, lambda m: m.subscription_id == "ä" * 64),
        ("nostr.filters", [], lambda m: m.filters == ()),
        ("nostr.resumptionToken", "AQ", lambda m: m.resumption_token == "AQ"),
        ("metadata.timestamp", 0, lambda m: m.metadata.timestamp == 0),
        ("metadata.ttl", 60, lambda m: m.metadata.ttl == 60),
        ("metadata.ttl", 86400, lambda m: m.metadata.ttl == 86400),
        ("metadata.priority", 255, lambda m: m.metadata.priority == 255),
        ("metadata.replyTo", "g.a", lambda m: m.metadata.reply_to == "g.a"),
        ("metadata.pull", 1, lambda m: m.metadata.pull == 1),
        ("metadata.pull", 50, lambda m: m.metadata.pull == 50),
        ("metadata.after", "s:0", lambda m: m.metadata.after == stored(0)),
        ("metadata.after", "n:12", lambda m: m.metadata.after == live(12)),
        ("metadata.window", 1, lambda m: m.metadata.window == 1),
        ("metadata.window", 10, lambda m: m.metadata.window == 10),
        (
            "metadata.propagate",
            {"hops": 3, "budget": "9"},
            lambda m: m.metadata.propagate == Propagation(3, 9),
        ),
        ("metadata.path", [KEY] * 16, lambda m: m.metadata.path == (KEY,) * 16),
        ("metadata.origin", KEY, lambda m: m.metadata.origin == KEY),
    )

    @pytest.mark.parametrize(("path", "value", "holds"), ACCEPTED)
    def test_a_field_within_its_rule(self, path: str, value: Any, holds: Any) -> None:
        assert holds(req(path, value))

    REFUSED = (
        *(
            ("payment.amount", each)
            for each in [
                *("", "00", "01", "-1", "+1", "1.0", "1e3", " 1", "1\n", "\u0661", str(2**64)),
                *(0, 1460, None, True, "9" * 5000),
            ]
        ),
        *(("payment.currency", each) for each in ["", "x" * 17, "U$D", "USD\n", 1, None]),
        *(("payment.purpose", each) for each in ["", "bribe", 1, None]),
        *(("payment.model", each) for each in ["", "FREE", "free\n", 1, None, []]),
        *(("payment.feeSchedule", each) for each in [None, [], "1", {"eventFee": 5}]),
        ("payment.feeSchedule", {"baseRelayFee": "-1"}),
        *(("nostr.subscriptionId", each) for each in ["", "x" * 65, 1, None, ["s1"]]),
        *(("nostr.resumptionToken", each) for each in [1, None, {}]),
        *(
            ("metadata.timestamp", each)
            for each in ["1", 1.0, True, None, -1, 2**40, 2**64 - 1, 1e30]
        ),
        *(("metadata.ttl", each) for each in [59, 86401, 0, -1, "3600", 3600.0, None, True]),
        *(("metadata.priority", each) for each in [-1, 256, "1", None]),
        *(
            ("metadata.sender", each)
            for each in ["", KEY.upper(), KEY[:-1], KEY + "0", "g", "x.y", 1, None]
        ),
        *(("metadata.delivery", each) for each in ["", "PUSH", "both", 1, None]),
        ("metadata.delivery", "push"),  # without a replyTo
        *(("metadata.replyTo", each) for each in ["", "g", "g..a", "g.a\n", "g." + "x" * 1022]),
        *(("metadata.pull", each) for each in [0, 51, -1, "1", 1.0, True]),
        *(("metadata.after", each) for each in ["", "s:", "s:01", "x:1", "n:-1", 1, "n:1 "]),
        *(("metadata.window", each) for each in [0, 11, "1", None]),
        *(
            ("metadata.propagate", each)
            for each in [{}, {"hops": 0, "budget": "1"}, {"hops": 4, "budget": "1"}, []]
        ),
        ("metadata.propagate", {"hops": 1, "budget": 1}),
        *(("metadata.path", each) for each in [KEY, [KEY] * 17, [1], ["x"], None]),
        *(("metadata.origin", each) for each in ["", "x", 1, None]),
    )

    @pytest.mark.parametrize(("path", "value"), REFUSED)
    def test_a_field_that_breaks_its_rule(self, path: str, value: Any) -> None:
        with pytest.raises(InvalidBody) as refused:
            decode(envelope(changed(path, value)))

        assert len(refused.value.data) < 400  # a client's long value is not thrown back at it

    @pytest.mark.parametrize("path", ["payment.amount", "metadata.timestamp"])
    def test_a_field_that_has_to_be_there(self, path: str) -> None:
        with pytest.raises(InvalidBody):
            decode(envelope(without(path)))

    @pytest.mark.parametrize(
        "filters",
        [
            None,
            {},
            "x",
            [1],
            [{"kinds": ["1"]}],
            [{"authors": ["x"]}],
            [{"search": "x"}],
            [{"unknown": 1}],
            [{"kinds": [20000]}],
            [{"kinds": [1]}, {"kinds": [20001, 29999]}],
        ],
    )
    def test_a_filter_that_is_refused(self, filters: Any) -> None:
        with pytest.raises(FilterRefused) as refused:
            decode(envelope(changed("nostr.filters", filters)))

        assert (refused.value.code, refused.value.error) == ("F00", "filter_invalid")

    @pytest.mark.parametrize("kinds", [[], [1, 20000], [19999], [30000]])
    def test_a_filter_with_a_kind_that_is_stored(self, kinds: list[int]) -> None:
        assert req("nostr.filters", [{"kinds": kinds}]).filters == (Filter(kinds=frozenset(kinds)),)

    def test_count_needs_a_filter(self) -> None:
        body = changed("nostr.filters", [])
        body["nostr"]["type"] = "COUNT"
        with pytest.raises(FilterRefused):
            decode(envelope(body, kind=8))


class TestOthersHabits:
    @pytest.mark.parametrize("path", ["paymentModel", "payment.paymentModel"])
    def test_payment_model_is_read_as_model(self, path: str) -> None:
        body = changed(path, "streaming")
        del body["payment"]["model"]

        message = decode(envelope(body))

        assert message.payment.model is Model.STREAMING

    def test_two_models_have_to_agree(self) -> None:
        assert req("paymentModel", "one_time").payment.model is Model.ONE_TIME
        with pytest.raises(InvalidBody):
            req("paymentModel", "hybrid")

    def test_an_address_as_sender_is_a_reply_to_without_a_key(self) -> None:
        body = changed("metadata.sender", "g.alice.client")
        del body["metadata"]["delivery"]

        metadata = decode(envelope(body)).metadata

        assert metadata.sender is None
        assert metadata.reply_to == "g.alice.client"
        assert metadata.delivery is Delivery.PUSH

    def test_a_reply_to_of_its_own_wins(self) -> None:
        body = changed("metadata.sender", "g.alice.client")
        body["metadata"]["replyTo"] = "g.bob"

        assert decode(envelope(body)).metadata.reply_to == "g.bob"


class TestDelivery:
    @pytest.mark.parametrize(
        ("fields", "delivery"),
        [
            ({}, None),
            ({"replyTo": "g.a"}, Delivery.PUSH),
            ({"replyTo": "g.a", "delivery": "push"}, Delivery.PUSH),
            ({"replyTo": "g.a", "delivery": "pull"}, Delivery.PULL),
            ({"delivery": "pull"}, Delivery.PULL),
            ({"pull": 5}, Delivery.PULL),
            ({"pull": 5, "replyTo": "g.a"}, Delivery.PULL),
        ],
    )
    def test_push_where_there_is_a_reply_to(self, fields: Any, delivery: Any) -> None:
        body = without("metadata.delivery")
        body["metadata"] |= fields

        assert decode(envelope(body)).metadata.delivery is delivery

    def test_push_and_pull_exclude_each_other(self) -> None:
        body = changed("metadata.delivery", "push")
        body["metadata"] |= {"replyTo": "g.a", "pull": 5}
        with pytest.raises(InvalidBody):
            decode(envelope(body))


class TestTimestamp:
    @pytest.mark.parametrize("now", [700, 1000, 1300])
    def test_a_timestamp_within_the_skew_is_accepted(self, now: int) -> None:
        check_timestamp(Metadata(1000), now, 300)

    @pytest.mark.parametrize("now", [0, 699, 1301, 10**12])
    def test_a_timestamp_beyond_the_skew_is_stale(self, now: int) -> None:
        with pytest.raises(StaleTimestamp) as refused:
            check_timestamp(Metadata(1000), now, 300)

        assert (refused.value.code, refused.value.error) == ("F00", "timestamp_stale")


class TestEvent:
    EVENT = sign_event(vectors.CLIENT_SECRET, kind=1, content="gm", created_at=5)

    def test_a_publish_names_no_subscription(self) -> None:
        message = EventMessage(self.EVENT, Payment(1), Metadata(5, sender=KEY))

        assert decode(encode(message)) == message
        assert delivered_for(message) is None

    def test_a_delivery_names_relay_and_subscription(self) -> None:
        message = EventMessage(self.EVENT, Payment(), Metadata(5, sender=KEY), "s1")
        assert delivered_for(message) == (KEY, "s1")
        assert delivered_for(decode(vectors.REQ)) is None
        assert delivered_for(decode(vectors.CLOSE)) is None

    @pytest.mark.parametrize("event", [None, [], {}, {"id": "x"}])
    def test_a_body_without_an_event_is_refused(self, event: Any) -> None:
        body = {"payment": {"amount": "0"}, "nostr": {"event": event}, "metadata": {"timestamp": 1}}
        with pytest.raises(InvalidBody, match="event"):
            decode(envelope(body, kind=1))


@pytest.mark.parametrize("entry", [None, [], {}, {"messageType": 0}, {"messageType": True}])
def test_an_entry_without_a_type_is_refused(entry: Any) -> None:
    with pytest.raises(InvalidHeader):
        decode_entry(entry)
