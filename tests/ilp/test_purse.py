"""Addresses of purses and payment pointers, and the conditions of plain packets."""

import hmac
from base64 import b64decode
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farthing.ilp import address
from farthing.ilp.address import InvalidAddress
from farthing.ilp.condition import Scheme, author_fulfillment, condition_of
from farthing.ilp.oer import InvalidOer
from farthing.ilp.purse import (
    InvalidPurseData,
    NotAPurse,
    PurseAddress,
    check_data,
    find_purse_fulfillment,
    is_public_key,
    parse_purse_address,
    purse_address,
    purse_fulfillment,
)
from farthing.ilp.spsp import answer, connect, connection_secret
from farthing.nostr.events import public_key_of

OWN = "g.agent.farthing"
RELAY_SECRET = b"\x07" * 32
OWNER_SECRET = b"\x09" * 32
KEY = bytes.fromhex(public_key_of(OWNER_SECRET))
RELAY_KEY = bytes.fromhex(public_key_of(RELAY_SECRET))
NO_POINT = bytes(31) + b"\x05"  # 5**3 + 7 is no square


def digest(key: bytes, message: bytes) -> bytes:
    return hmac.new(key, message, sha256).digest()


def test_address_of_a_purse_is_the_key_under_ours() -> None:
    destination = purse_address(OWN, KEY)

    assert destination == f"g.agent.farthing.purse.{KEY.hex()}"
    assert parse_purse_address(OWN, destination) == PurseAddress(KEY)


@given(st.binary(min_size=16, max_size=16))
def test_address_of_a_connection_gives_key_and_token_back(token: bytes) -> None:
    destination = purse_address(OWN, KEY, token)

    assert address.is_valid(destination)
    assert parse_purse_address(OWN, destination) == PurseAddress(KEY, token)
    assert parse_purse_address(OWN, destination + ".of.the~sender") == PurseAddress(KEY, token)


@pytest.mark.parametrize(
    "destination",
    [
        OWN,
        OWN + ".purse",
        OWN + ".purses." + KEY.hex(),
        "g.agent.other.purse." + KEY.hex(),
        OWN + "x.purse." + KEY.hex(),
        OWN + ".purse." + KEY.hex().upper(),
        OWN + ".purse." + KEY.hex()[:-1],
        OWN + ".purse." + KEY.hex() + "0",
        OWN + ".purse." + NO_POINT.hex(),
        OWN + ".purse." + "ff" * 32,
        OWN + ".purse." + "00" * 32,
        OWN + ".purse." + KEY.hex() + ".",
        OWN + ".purse." + KEY.hex() + "._",
        OWN + ".purse." + KEY.hex() + "." + "A" * 21,
        OWN + ".purse." + KEY.hex() + "." + "A" * 23,
        OWN + ".purse." + KEY.hex() + "." + "A" * 21 + "~",
        OWN + ".purse." + KEY.hex() + "." + "A" * 21 + "B",  # a second spelling
    ],
)
def test_what_is_no_purse_is_refused(destination: str) -> None:
    with pytest.raises(NotAPurse):
        parse_purse_address(OWN, destination)


def test_key_is_a_point_of_the_curve() -> None:
    assert is_public_key(KEY)
    assert not is_public_key(NO_POINT)
    assert not is_public_key(KEY[:31])
    assert not is_public_key(b"")


def test_address_that_gets_too_long_is_refused() -> None:
    longest = "g." + "a" * (1023 - len("g..purse.") - 64)

    assert len(purse_address(longest, KEY)) == 1023
    with pytest.raises(InvalidAddress):
        purse_address(longest + "a", KEY)
    with pytest.raises(InvalidAddress):
        connect(RELAY_SECRET, longest, KEY, bytes(16))


@pytest.mark.parametrize("size", [16, 17, 1024])
def test_data_of_a_usable_length_is_taken(size: int) -> None:
    check_data(bytes(size))


@pytest.mark.parametrize("size", [0, 15, 1025])
def test_data_too_short_or_long_is_refused(size: int) -> None:
    with pytest.raises(InvalidPurseData, match=f"got {size}"):
        check_data(bytes(size))


def test_quoted_fulfillment_is_as_specified() -> None:
    data = b"sixteen octets !"
    expected = digest(digest(RELAY_SECRET, b"farthing/purse/v1"), KEY + data)

    assert purse_fulfillment(RELAY_SECRET, KEY, data) == expected


@given(st.binary(min_size=16, max_size=64))
def test_relay_fulfils_what_was_quoted_and_what_the_key_made(data: bytes) -> None:
    quoted = purse_fulfillment(RELAY_SECRET, KEY, data)
    made = author_fulfillment(OWNER_SECRET, RELAY_KEY, data)

    def find(fulfillment: bytes, key: bytes = KEY) -> tuple[Scheme, bytes] | None:
        return find_purse_fulfillment(
            condition_of(fulfillment), relay_secret=RELAY_SECRET, key=key, data=data
        )

    assert find(quoted) == (Scheme.QUOTE, quoted)
    assert find(made) == (Scheme.AUTHOR, made)
    assert find(quoted, RELAY_KEY) is None
    assert find(made, RELAY_KEY) is None
    # What any connector could compute is never taken for a purse.
    assert find(sha256(data).digest()) is None


def test_payment_pointer_answers_address_and_secret() -> None:
    token = bytes(range(16))
    expected = digest(digest(RELAY_SECRET, b"farthing/spsp/v1"), KEY + token)

    fields = answer(connect(RELAY_SECRET, OWN, KEY, token))

    assert fields == {
        "destination_account": f"{OWN}.purse.{KEY.hex()}.AAECAwQFBgcICQoLDA0ODw",
        "shared_secret": fields["shared_secret"],
        "receipts_enabled": False,
    }
    assert b64decode(fields["shared_secret"], validate=True) == expected


def test_secret_is_found_again_from_the_address_alone() -> None:
    connection = connect(RELAY_SECRET, OWN, KEY, b"\x01" * 16)

    found = parse_purse_address(OWN, connection.destination_account)

    assert found.token is not None
    secret = connection_secret(RELAY_SECRET, found.key, found.token)
    assert secret == connection.shared_secret


def test_each_token_and_key_has_a_secret_of_its_own() -> None:
    tokens = [b"\x01" * 16, b"\x02" * 16]

    secrets = {connection_secret(RELAY_SECRET, key, t) for key in (KEY, RELAY_KEY) for t in tokens}

    assert len(secrets) == 4
    assert connect(RELAY_SECRET, OWN, KEY, tokens[0]).shared_secret.hex() not in repr(
        connect(RELAY_SECRET, OWN, KEY, tokens[0])
    )


@pytest.mark.parametrize("size", [0, 15, 17])
def test_token_of_another_length_is_refused(size: int) -> None:
    with pytest.raises(InvalidOer):
        connection_secret(RELAY_SECRET, KEY, bytes(size))
