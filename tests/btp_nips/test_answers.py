"""Answers: their JSON, and messages that fill a packet and never more."""

from dataclasses import replace
from functools import partial

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farthing.btp_nips.answers import (
    Candidate,
    ReqAnswer,
    choose_messages,
    close_answer,
    count_answer,
    event_answer,
    read_req_answer,
)
from farthing.btp_nips.codec import Written, decode, decode_entry, write
from farthing.btp_nips.errors import MessageRefused
from farthing.btp_nips.identity import peer_owner
from farthing.btp_nips.lifecycle import State
from farthing.btp_nips.messages import EventMessage, MessageType, Metadata, Payment, Purpose
from farthing.btp_nips.models import Model
from farthing.btp_nips.positions import LAST, START, Position, live, stored
from farthing.btp_nips.relay_messages import RelayMessages
from farthing.btp_nips.tokens import ResumptionToken, issue_token
from farthing.nostr.events import Event, sign_event
from tests.btp_nips.strategies import AMOUNT, POSITION, SUBSCRIPTION_ID

RELAY = "a" * 64
MESSAGES = RelayMessages("s1", RELAY, "USD", began=1000)


def answer(id: str = "s1", position: Position = START, credit: int = 0) -> ReqAnswer:
    token = ResumptionToken(peer_owner("bob"), id, position, 2000)
    return ReqAnswer(
        subscription_id=id,
        state=State.ACTIVE,
        model=Model.STREAMING,
        event_count=3,
        expires_at_ms=2_000_000,
        price=1000,
        event_fee=10,
        credit=credit,
        position=position,
        resumption_token=issue_token(bytes(range(32)), token),
    )


def event(content: str = "gm", created_at: int = 5) -> Event:
    return sign_event(b"\x02" * 32, kind=1, content=content, created_at=created_at)


def entry_of(size: int) -> Written:
    """A message whose entry has this size, not otherwise a real one."""
    empty = Written(MessageType.NOTICE, b'{"x":""}')
    return Written(MessageType.NOTICE, b'{"x":"%b"}' % (b"x" * (size - len(empty.entry))))


class TestForms:
    def test_an_answer_to_req_has_its_fields_in_order(self) -> None:
        messages = [MESSAGES.closed("bye", 7)]
        body = answer(position=stored(2), credit=70).encode(messages, more=True)
        assert list(orjson.loads(body)) == [
            *("subscriptionId", "status", "model", "eventCount", "expiresAt", "price"),
            *("eventFee", "credit", "position", "resumptionToken", "messages", "more"),
        ]
        fields = orjson.loads(body)
        assert (fields["status"], fields["model"]) == ("active", "streaming")
        assert (fields["expiresAt"], fields["eventCount"]) == (2_000_000, 3)
        assert (fields["price"], fields["eventFee"], fields["credit"]) == ("1000", "10", "70")
        assert (fields["position"], fields["more"]) == ("s:2", True)
        (message,) = fields["messages"]
        assert list(message) == ["messageType", "payment", "nostr", "metadata"]
        assert message["messageType"] == 9

    def test_answers_to_close_count_and_event_have_their_fields(self) -> None:
        assert orjson.loads(close_answer("s1", 70)) == {
            "subscriptionId": "s1",
            "closed": True,
            "credit": "70",
        }
        assert orjson.loads(count_answer("s1", 5)) == {"subscriptionId": "s1", "count": 5}
        assert orjson.loads(count_answer("s1", 5, approximate=True))["approximate"] is True
        assert orjson.loads(event_answer(RELAY)) == {
            "eventId": RELAY,
            "accepted": True,
            "message": "",
        }

    @settings(max_examples=50)
    @given(SUBSCRIPTION_ID, POSITION, AMOUNT, st.booleans())
    def test_a_client_reads_what_was_written(self, id, position, credit, more: bool) -> None:
        written = answer(id, position, credit)
        messages = [MESSAGES.event(stored(1), event().to_json(), 5, 10), MESSAGES.closed("bye", 7)]

        found = read_req_answer(written.encode(messages, more=more))

        assert found.answer == written and found.more is more
        assert found.messages == [decode(each.envelope) for each in messages]

    @pytest.mark.parametrize(
        "data", [b"", b"[]", b"{}", b'{"messages":[]}', b'{"messages":[1],"status":"active"}']
    )
    def test_data_that_is_no_answer_is_refused(self, data: bytes) -> None:
        with pytest.raises(MessageRefused):
            read_req_answer(data)


class TestPacking:
    @settings(max_examples=50)
    @given(st.lists(st.integers(40, 20_000), max_size=60), SUBSCRIPTION_ID, POSITION, AMOUNT)
    def test_all_that_fit_and_no_octet_more(self, sizes, id, position, credit) -> None:
        room = answer(id).room
        candidates = [Candidate(live(at), entry_of(size)) for at, size in enumerate(sizes)]

        chosen, more = choose_messages(room, candidates)

        # Whatever position, credit and token the answer has by then.
        body = answer(id, position, credit).encode([each.message for each in chosen], more=more)
        assert len(body) <= 32767
        assert [each.position for each in chosen] == [live(at) for at in range(len(chosen))]
        assert more is (len(chosen) < len(sizes))
        if more:
            filled = sum(sizes[: len(chosen) + 1]) + len(chosen)
            assert filled > room

    def test_the_answer_may_grow_after_its_messages_are_chosen(self) -> None:
        room = answer().room
        chosen, more = choose_messages(room, [Candidate(LAST, entry_of(room))])
        assert len(chosen) == 1 and not more

        grown = answer(position=LAST, credit=2**64 - 1).encode([chosen[0].message])

        assert 32767 - 20 < len(grown) <= 32767
        assert choose_messages(room, [Candidate(LAST, entry_of(room + 1))]) == ([], True)

    def test_an_event_that_a_packet_has_room_for_and_an_answer_has_not(self) -> None:
        room = answer().room
        large, notice = entry_of(room + 1), entry_of(50)
        assert large.fits
        assert choose_messages(room, [Candidate(live(1), large, lambda: notice)]) == (
            [(live(1), notice, True)],
            False,
        )

    def test_a_packet_is_used_nearly_whole(self) -> None:
        candidates = [Candidate(live(at), entry_of(100)) for at in range(400)]
        chosen, more = choose_messages(answer().room, candidates)
        body = answer().encode([each.message for each in chosen], more=more)
        assert more and 32767 - 250 < len(body) <= 32767

    def test_an_event_that_no_packet_has_room_for_is_a_notice(self) -> None:
        large, small = event("x" * 32_600), event("y")
        candidates = [
            Candidate(
                stored(at),
                MESSAGES.event(stored(at), each.to_json(), each.created_at, 10),
                partial(MESSAGES.too_large, stored(at), each.id, each.created_at),
            )
            for at, each in enumerate([large, small], 1)
        ]

        chosen, more = choose_messages(answer().room, candidates)

        assert not more
        assert [(each.position, each.is_replaced) for each in chosen] == [
            (stored(1), True),
            (stored(2), False),
        ]
        notice = decode_entry(orjson.loads(chosen[0].message.entry))
        assert notice.message == f"[relay_error] event {large.id} is too large for a packet"
        assert notice.metadata.position == stored(1)

    def test_one_that_only_waits_for_its_turn_is_not_replaced(self) -> None:
        notice = entry_of(50)
        candidates = [Candidate(live(at), entry_of(20_000), notice) for at in range(2)]
        chosen, more = choose_messages(30_000, candidates)
        assert more and [each.is_replaced for each in chosen] == [False]


class TestRelayMessages:
    def test_the_same_position_gives_the_same_bytes(self) -> None:
        json = event().to_json()
        one = MESSAGES.event(live(7), json, 5, 10)
        again = RelayMessages("s1", RELAY, "USD", 1000).event(live(7), json, 5, 10)
        assert one.envelope == again.envelope

    def test_an_event_states_its_fee_its_position_and_a_steady_time(self) -> None:
        old, new = event(created_at=5), event(created_at=5000)
        for each, timestamp in ((old, 1000), (new, 5000)):
            written = MESSAGES.event(live(7), each.to_json(), each.created_at, 10)
            message = decode(written.envelope)
            assert message.event == each
            assert (message.subscription_id, message.payment.amount) == ("s1", 10)
            assert message.payment.purpose == "event_publish"
            assert message.metadata.sender == RELAY
            assert message.metadata.position == live(7)
            assert message.metadata.timestamp == timestamp

    @pytest.mark.parametrize(("id", "fee"), [("s1", 10), ('a "quoted" \u00e9\\', 0)])
    def test_an_event_is_written_as_every_other_message_is(self, id: str, fee: int) -> None:
        """Its parts are put together by hand, for there are many."""
        each = event('"}}\u00e9')
        of = RelayMessages(id, RELAY, "USD/9", 1000)
        purpose = Purpose.EVENT_PUBLISH if fee else Purpose.RELAY_FEE
        metadata = Metadata(1000, sender=RELAY, position=stored(3))
        message = EventMessage(each, Payment(fee, "USD/9", purpose), metadata, id)
        written = of.event(stored(3), each.to_json(), 5, fee)
        assert written == write(message)
        assert written.entry_size == len(written.entry)

    def test_eose_tells_where_the_subscriber_stands(self) -> None:
        message = decode(MESSAGES.eose(live(7), 3, "AQ", 70).envelope)
        assert (message.event_count, message.resumption_token, message.credit) == (3, "AQ", 70)
        assert message.metadata.position == live(7)
        assert (message.metadata.timestamp, message.payment.amount) == (1000, 0)

    def test_a_relays_messages_are_read_back(self) -> None:
        notice = decode(MESSAGES.notice("payment_insufficient", "no credit", 7).envelope)
        assert notice.message == "[payment_insufficient] no credit"
        assert notice.subscription_id == "s1"
        closed = decode(MESSAGES.closed("Subscription TTL expired", 7).envelope)
        assert closed.reason == "Subscription TTL expired"
        challenge = decode(MESSAGES.challenge(bytes(range(32)), 7).envelope)
        assert challenge.challenge == bytes(range(32))
        for message in (notice, closed, challenge):
            assert message.metadata.sender == RELAY
            assert message.metadata.timestamp == 7

    def test_every_message_is_of_the_subscription(self) -> None:
        other = replace(MESSAGES, subscription_id="s2")
        assert other.closed("x", 7) != MESSAGES.closed("x", 7)


def test_large_events_go_out_by_push_up_to_the_last_octet() -> None:
    overhead = len(MESSAGES.event(live(7), event("").to_json(), 5, 10).body)
    for size in (32763 - overhead, 32764 - overhead):
        written = MESSAGES.event(live(7), event("x" * size).to_json(), 5, 10)
        assert written.fits is (size == 32763 - overhead)
