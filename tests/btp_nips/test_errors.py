"""Errors: each has the name and the reject code of the specification's table."""

import orjson
import pytest

from farthing.btp_nips import errors
from farthing.btp_nips.errors import MessageRefused
from farthing.ilp.reject import Rejected

TABLE = {
    "InvalidHeader": ("header_invalid", "F06"),
    "InvalidBody": ("body_invalid", "F00"),
    "FilterRefused": ("filter_invalid", "F00"),
    "StaleTimestamp": ("timestamp_stale", "F00"),
    "InvalidToken": ("token_invalid", "F00"),
    "InvalidAmount": ("amount_invalid", "F03"),
    "PaymentInsufficient": ("payment_insufficient", "F04"),
    "UnknownCondition": ("condition_unknown", "F05"),
    "UnexpectedMessage": ("message_unexpected", "F06"),
    "LimitExceeded": ("limit_exceeded", "F99"),
    "RateExceeded": ("limit_exceeded", "T05"),
    "ModelNotOffered": ("model_unavailable", "F99"),
    "SubscriptionNotFound": ("subscription_not_found", "F99"),
    "SubscriptionExpired": ("expired", "F99"),
    "Replayed": ("message_replayed", "F99"),
    "Outdated": ("message_outdated", "F99"),
    "LoopDetected": ("loop_detected", "F99"),
    "AddressRefused": ("address_unproven", "F99"),
    "AddressSilent": ("address_unproven", "T01"),
    "NoTimeForProof": ("address_unproven", "R02"),
    "RelayError": ("relay_error", "T00"),
}


def test_the_table_is_complete() -> None:
    found = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, MessageRefused)
    }
    assert found - {"MessageRefused"} == set(TABLE)


@pytest.mark.parametrize("name", TABLE)
def test_each_error_has_its_name_code_and_json(name: str) -> None:
    error, code = TABLE[name]

    refused = getattr(errors, name)("why", price="7")

    assert isinstance(refused, Rejected)
    assert (refused.error, refused.code) == (error, code)
    assert refused.message == f"[{error}] why"
    assert orjson.loads(refused.data) == {
        "error": error,
        "message": f"[{error}] why",
        "price": "7",
    }
