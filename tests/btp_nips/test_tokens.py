"""Resumption tokens: only as issued, only to their owner, only in time."""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farthing.btp_nips.errors import InvalidToken
from farthing.btp_nips.identity import Owner, key_owner, peer_owner
from farthing.btp_nips.positions import live, stored
from farthing.btp_nips.tokens import ResumptionToken, issue_token, read_token
from tests.btp_nips.strategies import POSITION, SUBSCRIPTION_ID

SECRET = b"\x01" * 32
OWNER = key_owner("a" * 64)
TOKEN = ResumptionToken(OWNER, "s1", live(7), 1000)
LABEL = b"farthing/subscription/v1"


def refused(text: str, secret: bytes = SECRET, owner: Owner = OWNER, now: int = 0) -> str:
    with pytest.raises(InvalidToken) as error:
        read_token(secret, text, owner=owner, now=now)
    assert (error.value.code, error.value.error) == ("F00", "token_invalid")
    return error.value.text


def sealed(body: bytes) -> str:
    mac = hmac.digest(hmac.digest(SECRET, LABEL, "sha256"), body, "sha256")
    return urlsafe_b64encode(body + mac).rstrip(b"=").decode()


def test_laid_out_as_the_specification_says() -> None:
    body = b'\x01{"o":"key:%b","s":"s1","p":"n:7","e":1000}' % (b"a" * 64)
    assert issue_token(SECRET, TOKEN) == sealed(body)


@settings(max_examples=50)
@given(SUBSCRIPTION_ID, POSITION, st.integers(0, 2**40))
def test_an_issued_token_is_read_back(id: str, position, expires_at: int) -> None:
    token = ResumptionToken(peer_owner("bob"), id, position, expires_at)
    text = issue_token(SECRET, token)
    assert "=" not in text
    assert read_token(SECRET, text, owner=peer_owner("bob"), now=expires_at) == token


def test_valid_until_a_day_after_the_expiry() -> None:
    text = issue_token(SECRET, TOKEN)
    assert read_token(SECRET, text, owner=OWNER, now=1000 + 86400) == TOKEN
    assert "expired" in refused(text, now=1000 + 86401)


def test_of_another_owner_or_relay() -> None:
    text = issue_token(SECRET, TOKEN)
    assert "owner" in refused(text, owner=peer_owner("a"))
    assert "issued" in refused(text, secret=b"\x02" * 32)


@given(st.data())
def test_no_bit_can_be_changed(data: st.DataObject) -> None:
    octets = bytearray(urlsafe_b64decode(issue_token(SECRET, TOKEN) + "=="))
    octets[data.draw(st.integers(0, len(octets) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    refused(urlsafe_b64encode(octets).rstrip(b"=").decode())


@pytest.mark.parametrize("change", [lambda t: t + "=", lambda t: t + "A", lambda t: t[:-1]])
@pytest.mark.parametrize("length", range(3))
def test_a_token_in_another_form_is_refused(change, length: int) -> None:
    token = ResumptionToken(OWNER, "s" * (length + 1), stored(1), 1000)
    refused(change(issue_token(SECRET, token)))


@pytest.mark.parametrize("text", ["", "A", "AQ", "AQ==", "\u00e4", "a b", "AQ\n", "A" * 43, "!!!!"])
def test_text_that_is_no_token_is_refused(text: str) -> None:
    refused(text)


def test_a_later_version_is_not_guessed_at() -> None:
    assert "version" in refused(sealed(b"\x02{}"))
