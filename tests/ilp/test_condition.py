"""Conditions: payer and relay agree, and the relay finds the scheme that a payer used."""

import hashlib
import hmac

import pytest
from coincurve import PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from farthing.ilp import condition as conditions
from farthing.ilp.condition import (
    InvalidKey,
    InvalidPubkey,
    Scheme,
    author_fulfillment,
    condition_of,
    find_fulfillment,
    interop_fulfillments,
    quote_fulfillment,
)

P = 2**256 - 2**32 - 977
N = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
G = (
    0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798,
    0x483ADA7726A3C4655DA4FBFC0E1108A8FD17B448A68554199C47D08FFB10D4B8,
)

SECRET = st.integers(1, N - 1).map(lambda scalar: scalar.to_bytes(32, "big"))
RELAY = (7).to_bytes(32, "big")
AUTHOR = (11).to_bytes(32, "big")
EVENT_ID = bytes.fromhex("a" * 64)
DATA = b"id: aaaa"


def x_only(secret: bytes) -> bytes:
    return PrivateKey(secret).public_key.format(compressed=True)[1:]


def naive_add(p, q):
    if p is None or q is None:
        return p or q
    if p[0] == q[0]:
        if (p[1] + q[1]) % P == 0:
            return None
        slope = 3 * p[0] * p[0] * pow(2 * p[1], -1, P) % P
    else:
        slope = (q[1] - p[1]) * pow(q[0] - p[0], -1, P) % P
    x = (slope * slope - p[0] - q[0]) % P
    return x, (slope * (p[0] - x) - p[1]) % P


def naive_multiply(scalar: int, point):
    total = None
    while scalar:
        if scalar & 1:
            total = naive_add(total, point)
        point = naive_add(point, point)
        scalar >>= 1
    return total


def naive_author_fulfillment(secret: bytes, other_secret: bytes, data: bytes) -> bytes:
    scalar = int.from_bytes(secret, "big") * int.from_bytes(other_secret, "big") % N
    shared = naive_multiply(scalar, G)[0].to_bytes(32, "big")
    key = hmac.new(shared, b"farthing/ilp/v1", hashlib.sha256).digest()
    return hmac.new(key, data, hashlib.sha256).digest()


def find(condition: bytes, **changes):
    known = {"relay_secret": RELAY, "author": x_only(AUTHOR), "event_id": EVENT_ID, "data": DATA}
    return find_fulfillment(condition, **(known | changes))


# author


@settings(max_examples=20)
@given(SECRET, SECRET, st.binary(max_size=100))
def test_payer_and_relay_agree_with_the_naive_curve(payer, relay, data) -> None:
    expected = naive_author_fulfillment(payer, relay, data)
    assert author_fulfillment(payer, x_only(relay), data) == expected
    assert author_fulfillment(relay, x_only(payer), data) == expected


@pytest.mark.parametrize("scalar", [1, 2, N - 1, N // 2])
def test_keys_at_the_edges_of_the_order(scalar: int) -> None:
    secret = scalar.to_bytes(32, "big")
    expected = naive_author_fulfillment(secret, RELAY, DATA)
    assert author_fulfillment(secret, x_only(RELAY), DATA) == expected
    assert author_fulfillment(RELAY, x_only(secret), DATA) == expected


def test_the_blinding_does_not_show() -> None:
    results = set()
    for _ in range(5):
        conditions._pair_mac.cache_clear()
        results.add(author_fulfillment(RELAY, x_only(AUTHOR), DATA))
    assert len(results) == 1


def test_a_different_key_or_data_gives_a_different_preimage() -> None:
    fulfillment = author_fulfillment(AUTHOR, x_only(RELAY), DATA)
    assert author_fulfillment(AUTHOR, x_only(RELAY), DATA + b"\n") != fulfillment
    assert author_fulfillment(AUTHOR, x_only((8).to_bytes(32, "big")), DATA) != fulfillment
    assert author_fulfillment((12).to_bytes(32, "big"), x_only(RELAY), DATA) != fulfillment


@pytest.mark.parametrize(
    "pubkey",
    [
        b"",
        bytes(31),
        bytes(33),
        bytes(32),
        b"\xff" * 32,
        P.to_bytes(32, "big"),
        b"\x00" * 31 + b"\x05",
    ],
)
def test_an_invalid_public_key_is_refused(pubkey: bytes) -> None:
    with pytest.raises(InvalidPubkey):
        author_fulfillment(RELAY, pubkey, DATA)


@pytest.mark.parametrize(
    "secret", [b"", b"\x01", bytes(32), N.to_bytes(32, "big"), b"\xff" * 32, b"\x00" * 32 + b"\x01"]
)
def test_an_invalid_secret_key_is_refused(secret: bytes) -> None:
    with pytest.raises(InvalidKey) as refusal:
        author_fulfillment(secret, x_only(AUTHOR), DATA)
    assert not isinstance(refusal.value, InvalidPubkey)


def test_the_curve_is_asked_once_a_pair_and_the_memory_is_bounded() -> None:
    conditions._pair_mac.cache_clear()
    for data in (b"1", b"2", b"3"):
        author_fulfillment(RELAY, x_only(AUTHOR), data)
    info = conditions._pair_mac.cache_info()
    assert (info.misses, info.hits) == (1, 2)
    assert info.maxsize is not None


# quote


def test_quote_is_the_nested_hmac() -> None:
    inner = hmac.new(RELAY, b"farthing/quote/v1", hashlib.sha256).digest()
    expected = hmac.new(inner, EVENT_ID, hashlib.sha256).digest()
    assert quote_fulfillment(RELAY, EVENT_ID) == expected


# interop


def test_interop_fulfillments_are_those_of_the_vector() -> None:
    by_id, by_data = interop_fulfillments("a" * 64, DATA)
    assert by_id.hex() == "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb"
    assert (
        condition_of(by_id).hex()
        == "64d28424725a6f219efb17d6f8e4036719bf9e1a8ec2388c22cfb5fc412d46bc"
    )
    assert by_data == hashlib.sha256(DATA).digest()


# finding


def made_by_payer() -> dict[str, tuple[Scheme, bytes]]:
    by_id, by_data = interop_fulfillments(EVENT_ID.hex(), DATA)
    return {
        "author": (Scheme.AUTHOR, author_fulfillment(AUTHOR, x_only(RELAY), DATA)),
        "quote": (Scheme.QUOTE, quote_fulfillment(RELAY, EVENT_ID)),
        "event id": (Scheme.INTEROP, by_id),
        "data": (Scheme.INTEROP, by_data),
    }


@pytest.mark.parametrize("name", made_by_payer())
def test_the_relay_finds_each_scheme(name: str) -> None:
    scheme, fulfillment = made_by_payer()[name]
    assert find(condition_of(fulfillment)) == (scheme, fulfillment)


@pytest.mark.parametrize("name", made_by_payer())
def test_a_scheme_that_is_not_accepted_is_not_found(name: str) -> None:
    scheme, fulfillment = made_by_payer()[name]
    condition = condition_of(fulfillment)
    assert find(condition, accept={scheme}) == (scheme, fulfillment)
    assert find(condition, accept=set(Scheme) - {scheme}) is None


@pytest.mark.parametrize("condition", [b"", bytes(31), bytes(32), bytes(33)])
def test_a_condition_that_nobody_made_is_not_found(condition: bytes) -> None:
    assert find(condition) is None


def test_an_author_that_is_no_key_leaves_the_other_schemes() -> None:
    made = made_by_payer()
    for pubkey in (b"\xff" * 32, b"short", None):
        assert find(condition_of(made["author"][1]), author=pubkey) is None
        assert find(condition_of(made["quote"][1]), author=pubkey) == made["quote"]


def test_without_an_event_id_only_author_and_data_are_tried() -> None:
    made = made_by_payer()
    found = {name: find(condition_of(f), event_id=None) for name, (_, f) in made.items()}
    assert found == {
        "author": made["author"],
        "quote": None,
        "event id": None,
        "data": made["data"],
    }


def test_a_broken_relay_key_is_told_and_not_taken_for_a_wrong_condition() -> None:
    with pytest.raises(InvalidKey):
        find(bytes(32), relay_secret=bytes(32))
