"""Lives of subscriptions: what a REQ means, against a plain table of all cases."""

from itertools import product

import pytest

from farthing.btp_nips.errors import (
    InvalidAmount,
    Outdated,
    Replayed,
    SubscriptionExpired,
    SubscriptionNotFound,
)
from farthing.btp_nips.lifecycle import (
    Current,
    Ending,
    Intent,
    State,
    after_eose,
    check_close,
    check_order,
    check_replay,
    delivery_start,
    intent_of,
)
from farthing.btp_nips.messages import Metadata, Payment, Req
from farthing.btp_nips.positions import live, stored
from farthing.nostr.filters import Filter

ONE = Filter(kinds=frozenset({1}))
TWO = Filter(kinds=frozenset({2}), limit=3)
NOW = 1000


def req(filters=(), ttl: int | None = None, pull: int | None = None, token: str | None = None):
    return Req("s1", tuple(filters), Payment(), Metadata(NOW, ttl=ttl, pull=pull), token)


def current(state: State = State.ACTIVE, expires_at: int = NOW + 1) -> Current:
    return Current((ONE, TWO), state, expires_at, last_timestamp=900)


class TestIntent:
    def test_of_an_id_that_nobody_has_used(self) -> None:
        assert intent_of(req([ONE]), 0, None, NOW) is Intent.CREATE
        for received, ttl, pull in product([0, 9], [None, 60], [None, 5]):
            with pytest.raises(SubscriptionNotFound):
                intent_of(req([], ttl, pull), received, None, NOW)

    @pytest.mark.parametrize("state", [State.PENDING, State.ACTIVE])
    @pytest.mark.parametrize("received", [0, 9])
    @pytest.mark.parametrize("ttl", [None, 60])
    @pytest.mark.parametrize("pull", [None, 5])
    def test_a_req_about_an_open_subscription_tops_up_pulls_or_asks(
        self, state: State, received: int, ttl, pull
    ) -> None:
        def intent(filters) -> Intent:
            return intent_of(req(filters, ttl, pull), received, current(state), NOW)

        if received or ttl:
            expected = Intent.TOP_UP
        elif pull:
            expected = Intent.PULL
        else:
            expected = Intent.STATUS
        assert intent([]) is expected
        # The same filters, in any order, say the same; without a wish they renew the delivery.
        same = Intent.TOP_UP if expected is Intent.STATUS else expected
        assert intent([ONE, TWO]) is same
        assert intent([TWO, ONE, ONE]) is same
        assert intent([ONE]) is Intent.REPLACE

    def test_a_token_asks_for_another_position_at_full_price(self) -> None:
        assert intent_of(req([ONE, TWO], token="AQ"), 9, current(), NOW) is Intent.REPLACE

    @pytest.mark.parametrize(
        ("state", "error"),
        [(State.EXPIRED, SubscriptionExpired), (State.CLOSED, SubscriptionNotFound)],
    )
    def test_of_one_that_has_ended(self, state: State, error) -> None:
        ended = current(state, NOW - 1)
        assert intent_of(req([ONE, TWO], pull=5), 9, ended, NOW) is Intent.CREATE
        assert intent_of(req(), 0, ended, NOW) is Intent.STATUS
        for received, ttl, pull in [(9, None, None), (0, 60, None), (0, None, 5)]:
            with pytest.raises(error) as refused:
                intent_of(req([], ttl, pull), received, ended, NOW)
            assert refused.value.code == "F99"

    def test_of_one_whose_end_is_not_written_down_yet(self) -> None:
        over = current(expires_at=NOW)
        assert intent_of(req(), 0, over, NOW) is Intent.STATUS
        assert intent_of(req([], ttl=60), 0, over, NOW) is Intent.TOP_UP
        assert intent_of(req([ONE, TWO]), 9, over, NOW) is Intent.REPLACE
        for received, pull in [(9, None), (0, 5)]:
            with pytest.raises(SubscriptionExpired):
                intent_of(req([], None, pull), received, over, NOW)


class TestStates:
    def test_an_eose_begins_and_brings_nothing_back(self) -> None:
        assert after_eose(State.PENDING) is State.ACTIVE
        for state in (State.ACTIVE, State.EXPIRED, State.CLOSED):
            assert after_eose(state) is state

    def test_the_text_of_an_expiry(self) -> None:
        assert Ending.TTL == "Subscription TTL expired"

    @pytest.mark.parametrize("state", State)
    def test_no_event_starts_at_or_after_the_expiry(self, state: State) -> None:
        is_open = state in (State.PENDING, State.ACTIVE)
        assert current(state, 1000).may_deliver(999) is is_open
        assert not current(state, 1000).may_deliver(1000)


class TestMessages:
    def test_close_takes_no_money(self) -> None:
        with pytest.raises(InvalidAmount) as refused:
            check_close(1, current())
        assert refused.value.code == "F03"

    def test_close_of_what_never_was(self) -> None:
        with pytest.raises(SubscriptionNotFound):
            check_close(0, None)

    @pytest.mark.parametrize("state", State)
    def test_a_second_close_is_fulfilled(self, state: State) -> None:
        check_close(0, current(state))

    def test_a_message_held_back_comes_too_late(self) -> None:
        check_order(900, current())
        check_order(0, None)
        with pytest.raises(Outdated) as refused:
            check_order(899, current())
        assert refused.value.code == "F99"

    def test_a_repetition_is_known_and_only_from_the_same_peer(self) -> None:
        assert check_replay(None, "bob") is False
        assert check_replay("bob", "bob") is True
        with pytest.raises(Replayed):
            check_replay("bob", "carol")


class TestPulling:
    def test_goes_on_behind_what_the_client_has(self) -> None:
        assert delivery_start(live(9), live(9), None) == live(9)
        assert delivery_start(live(9), live(9), stored(3)) == stored(3)

    def test_a_client_that_went_back_may_go_on_where_it_was(self) -> None:
        assert delivery_start(stored(1), live(9), None) == stored(1)
        assert delivery_start(stored(1), live(9), live(9)) == live(9)

    def test_what_was_never_handed_out_is_not_passed_over(self) -> None:
        assert delivery_start(stored(3), stored(3), live(9)) == stored(3)
        assert delivery_start(stored(1), stored(3), live(9)) == stored(3)
        # EOSE and a NOTICE move the position without a charge.
        assert delivery_start(live(7), stored(3), live(9)) == live(7)
