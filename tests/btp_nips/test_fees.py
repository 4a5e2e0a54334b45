"""Fees: the specification's table, ceilings, top-ups, refills, and every place that states them."""

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farthing.btp_nips.codec import decode
from farthing.btp_nips.errors import (
    InvalidAmount,
    LimitExceeded,
    ModelNotOffered,
    PaymentInsufficient,
)
from farthing.btp_nips.fees import (
    CreditLevel,
    FeeSchedule,
    Terms,
    complexity,
    credit_level,
    extended,
    fees_in_tags,
    low_credit_text,
    refill,
    top_up,
)
from farthing.btp_nips.messages import Ceilings, Payment, Req
from farthing.btp_nips.models import Model
from farthing.nostr.filters import Filter, parse_filter
from tests.btp_nips import vectors

FEES = FeeSchedule(
    models=frozenset(Model),
    base_fee=1000,
    minute_fee=1,
    complexity_fee=100,
    setup_fee=1000,
    event_fee=10,
    hybrid_fee=10000,
    hybrid_event_fee=5,
    default_ttl=3600,
    max_ttl=86400,
    free_events=100,
    free_ttl=3600,
    asset_code="USD",
    asset_scale=9,
)
FILTERS = (Filter(kinds=frozenset({1}), limit=2),)
A, B = "a" * 64, "b" * 64


def agree(received: int, ttl: int | None = None, fees: FeeSchedule = FEES, **payment: Any):
    return fees.agree(Payment(**payment), FILTERS, ttl, received=received)


class TestComplexity:
    @pytest.mark.parametrize(
        ("filters", "expected"),
        [
            ([], 0),
            ([{}], 0),
            ([{"ids": [A, B, A], "authors": [A], "kinds": [1, 1], "#t": ["x", "y"], "#e": [A]}], 7),
            ([{"limit": 0}], 0),
            ([{"limit": 99}], 99),
            ([{"limit": 100}], 100),
            ([{"limit": 5000}], 100),
            ([{"since": 5, "until": 9}], 0),
            ([{"kinds": [1], "limit": 5}, {"kinds": [1], "limit": 5}], 12),
        ],
    )
    def test_counts_distinct_values_and_limits(self, filters: list[Any], expected: int) -> None:
        assert complexity(map(parse_filter, filters)) == expected


class TestPrices:
    def test_the_vector_costs_1460(self) -> None:
        req = decode(vectors.REQ)
        assert isinstance(req, Req)

        agreement = FEES.agree(req.payment, req.filters, req.metadata.ttl, received=1460)

        assert (agreement.terms.price, agreement.ttl, agreement.credit) == (1460, 3600, 0)

    @pytest.mark.parametrize(
        ("model", "price", "event_fee", "least"),
        [
            (Model.FREE, 0, 0, 0),
            (Model.ONE_TIME, 1000 + 60 + 300, 0, 1360),
            (Model.STREAMING, 1000, 10, 1010),
            (Model.HYBRID, 10000, 5, 10005),
        ],
    )
    def test_each_model_has_its_price_its_event_fee_and_its_least_amount(
        self, model: Model, price: int, event_fee: int, least: int
    ) -> None:
        terms = FEES.terms(model, FILTERS, 3600)
        assert (terms.price, terms.event_fee, terms.least) == (price, event_fee, least)

    @pytest.mark.parametrize(("ttl", "minutes"), [(60, 1), (119, 1), (120, 2), (86400, 1440)])
    def test_one_time_pays_whole_minutes(self, ttl: int, minutes: int) -> None:
        assert FEES.terms(Model.ONE_TIME, (), ttl).price == 1000 + minutes

    @pytest.mark.parametrize("model", [Model.ONE_TIME, Model.STREAMING, Model.HYBRID])
    def test_what_exceeds_the_price_is_credit(self, model: Model) -> None:
        terms = FEES.terms(model, FILTERS, 3600)

        assert agree(terms.least, model=model).credit == terms.event_fee
        assert agree(terms.price + 777, model=model).credit == 777
        with pytest.raises(PaymentInsufficient):
            agree(terms.least - 1, model=model)

    def test_too_little_is_f04_with_what_it_takes(self) -> None:
        with pytest.raises(PaymentInsufficient) as refused:
            agree(1009, model=Model.STREAMING)

        assert refused.value.code == "F04"
        details = orjson.loads(refused.value.data)
        assert details["error"] == "payment_insufficient"
        assert details["message"].startswith("[payment_insufficient] ")
        assert (details["price"], details["received"]) == ("1010", "1009")
        assert (details["asset_code"], details["asset_scale"]) == ("USD", 9)

    def test_money_for_a_free_subscription_is_f03(self) -> None:
        assert agree(0, model=Model.FREE).credit == 0
        with pytest.raises(InvalidAmount) as refused:
            agree(1, model=Model.FREE)
        assert refused.value.code == "F03"

    def test_a_free_one_is_short_and_small(self) -> None:
        agreement = agree(0, model=Model.FREE)
        assert (agreement.ttl, agreement.terms.max_events) == (3600, 100)
        assert FEES.terms(Model.STREAMING, (), 60).max_events is None
        with pytest.raises(LimitExceeded):
            agree(0, ttl=3601, model=Model.FREE)

    def test_the_operator_may_shorten_time(self) -> None:
        fees = replace(FEES, max_ttl=600, default_ttl=3600)
        assert agree(10**6, fees=fees).ttl == 600
        with pytest.raises(LimitExceeded):
            agree(10**6, ttl=601, fees=fees)

    def test_a_model_that_is_not_offered(self) -> None:
        fees = replace(FEES, models=frozenset({Model.ONE_TIME}))
        with pytest.raises(ModelNotOffered):
            agree(10**6, fees=fees, model=Model.STREAMING)

    def test_a_budget_comes_out_of_the_amount(self) -> None:
        payment = Payment(model=Model.STREAMING)
        agreement = FEES.agree(payment, FILTERS, None, received=1510, budget=500)
        assert agreement.credit == 10
        with pytest.raises(PaymentInsufficient) as refused:
            FEES.agree(payment, FILTERS, None, received=1509, budget=500)
        assert orjson.loads(refused.value.data)["price"] == "1510"


class TestChoice:
    @pytest.mark.parametrize(
        ("payment", "received", "model"),
        [
            (Payment(), 0, Model.FREE),
            (Payment(), 1, Model.ONE_TIME),
            (Payment(ceilings=Ceilings(event_fee=5)), 0, Model.HYBRID),
            (Payment(ceilings=Ceilings(event_fee=0)), 9, Model.HYBRID),
            (Payment(ceilings=Ceilings(base_relay_fee=5)), 9, Model.ONE_TIME),
            (Payment(model=Model.STREAMING, ceilings=Ceilings(event_fee=5)), 0, Model.STREAMING),
            (Payment(amount=5000), 0, Model.FREE),  # what it says is advisory
        ],
    )
    def test_where_no_model_is_named(self, payment: Payment, received: int, model: Model) -> None:
        assert FEES.choose(payment, received) is model

    def test_where_nothing_is_free_no_money_asks_for_the_price(self) -> None:
        fees = replace(FEES, models=frozenset({Model.ONE_TIME}))
        with pytest.raises(PaymentInsufficient):
            agree(0, fees=fees)


class TestCeilings:
    @pytest.mark.parametrize("ceilings", [Ceilings(9999), Ceilings(10000, 4), Ceilings(None, 4)])
    def test_a_fee_above_the_ceiling_is_refused(self, ceilings: Ceilings) -> None:
        with pytest.raises(PaymentInsufficient):
            agree(10**6, model=Model.HYBRID, ceilings=ceilings)

    def test_a_refusal_names_the_ceiling_and_not_the_amount_that_was_enough(self) -> None:
        with pytest.raises(PaymentInsufficient) as refused:
            agree(10**6, model=Model.HYBRID, ceilings=Ceilings(None, 4))
        assert refused.value.text == "expected at least 5 as eventFee for model hybrid, got 4"

    @pytest.mark.parametrize("ceilings", [Ceilings(10000, 5), Ceilings(99999, 50), Ceilings()])
    def test_a_fee_below_the_ceiling_stays_as_it_is(self, ceilings: Ceilings) -> None:
        terms = agree(10**6, model=Model.HYBRID, ceilings=ceilings).terms
        assert (terms.price, terms.event_fee) == (10000, 5)


class TestTopUp:
    STREAMING = FEES.terms(Model.STREAMING, (), 60)
    ONE_TIME = FEES.terms(Model.ONE_TIME, (), 60)
    FREE = FEES.terms(Model.FREE, (), 60)

    def top(self, terms: Terms, received: int, ttl: int | None, credit: int = 0, old: int = 1000):
        return top_up(terms, credit=credit, expires_at=old, received=received, ttl=ttl, now=900)

    def test_without_a_ttl_all_becomes_credit(self) -> None:
        assert self.top(self.STREAMING, 50, None, credit=7) == (57, 1000, 0)
        assert self.top(self.ONE_TIME, 50, None, credit=7) == (57, 1000, 0)

    def test_with_a_ttl_time_is_added(self) -> None:
        assert self.top(self.STREAMING, 50, 600) == (50, 1600, 0)
        assert self.top(self.STREAMING, 0, 600, old=800) == (0, 1500, 0)
        assert self.top(self.STREAMING, 0, 86400) == (0, 900 + 86400, 0)

    def test_one_time_pays_for_time_from_amount_and_credit(self) -> None:
        assert self.top(self.ONE_TIME, 8, 659, credit=5) == (3, 1659, 10)
        assert self.top(self.ONE_TIME, 0, 600, credit=10) == (0, 1600, 10)
        with pytest.raises(PaymentInsufficient) as refused:
            self.top(self.ONE_TIME, 4, 600, credit=5)
        details = orjson.loads(refused.value.data)
        assert (details["price"], details["received"]) == ("5", "4")

    def test_free_takes_no_money_and_stays_short(self) -> None:
        assert self.top(self.FREE, 0, 3600) == (0, 900 + 3600, 0)
        with pytest.raises(InvalidAmount):
            self.top(self.FREE, 1, None)
        with pytest.raises(LimitExceeded):
            self.top(self.FREE, 0, 3601)

    @given(st.integers(0, 200_000), st.integers(0, 200_000), st.integers(60, 86400))
    def test_time_is_never_further_than_the_maximum(self, now: int, old: int, ttl: int) -> None:
        later = extended(now=now, expires_at=old, ttl=ttl, max_ttl=86400)
        assert later == min(max(now, old) + ttl, now + 86400)
        assert now < later <= now + 86400


class TestCredit:
    @pytest.mark.parametrize(
        ("credit", "purse", "drawn"),
        [
            (10, 5000, 0),
            (9, 5000, 1000),
            (0, 1000, 1000),
            (0, 999, 999),
            (9, 1, 1),
            (8, 1, 0),
            (0, 0, 0),
        ],
    )
    def test_refilled_in_steps_of_a_hundred_fees(self, credit: int, purse: int, drawn: int) -> None:
        assert refill(credit, purse, 10) == drawn

    @pytest.mark.parametrize(
        ("credit", "purse", "level"),
        [
            (100, 0, CreditLevel.ENOUGH),
            (0, 100, CreditLevel.ENOUGH),
            (99, 0, CreditLevel.LOW),
            (5, 5, CreditLevel.LOW),
            (9, 0, CreditLevel.GONE),
            (0, 0, CreditLevel.GONE),
        ],
    )
    def test_levels_at_ten_fees_and_one(self, credit: int, purse: int, level: CreditLevel) -> None:
        assert credit_level(credit, purse, 10) is level

    def test_what_costs_nothing_never_runs_out(self) -> None:
        assert credit_level(0, 0, 0) is CreditLevel.ENOUGH
        assert refill(0, 1000, 0) == 0

    def test_the_low_notice_counts_events(self) -> None:
        assert low_credit_text(25, 10, 10) == "35 left, enough for 3 events at 10 each"


class TestStatements:
    def test_tags_are_read_back_as_the_same_fees(self) -> None:
        tags = [["ilp_address", "g.a"], *FEES.as_tags(), ["asset_code", "USD"]]
        assert fees_in_tags(tags, "USD", 9) == FEES
        assert all(isinstance(part, str) for tag in tags for part in tag)

    @pytest.mark.parametrize("value", ["", "-1", "x", "1.0", "9" * 30, "\u0661"])
    def test_tags_that_state_no_fees(self, value: str) -> None:
        tags = FEES.as_tags()
        assert fees_in_tags([], "USD", 9) is None
        assert fees_in_tags(tags[:-1], "USD", 9) is None
        assert fees_in_tags([*tags[:-1], [tags[-1][0], value]], "USD", 9) is None

    def test_the_relay_information_states_each_model_that_is_on(self) -> None:
        stated = FEES.as_fees()["paid_subscription"]
        assert [each["model"] for each in stated] == ["free", "one_time", "streaming", "hybrid"]
        assert stated[1] == {
            "model": "one_time",
            "amount": 1000,
            "event_fee": 0,
            "unit": "USD/1e9",
            "max_ttl": 86400,
            "per_minute": 1,
            "per_complexity": 100,
        }
        assert stated[0]["max_events"] == 100
        some = replace(FEES, models=frozenset({Model.HYBRID}))
        assert [each["model"] for each in some.as_fees()["paid_subscription"]] == ["hybrid"]

    @pytest.mark.parametrize("model", Model)
    def test_the_quoted_amount_buys_the_subscription(self, model: Model) -> None:
        quote = FEES.quote(model, FILTERS, None)
        agreement = agree(int(quote["least"]), model=model)
        assert str(agreement.terms.price) == quote["price"]
        assert agreement.ttl == quote["ttl"]
        assert quote["complexity"] == 3
