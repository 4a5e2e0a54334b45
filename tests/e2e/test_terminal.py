"""What commands print of strangers' texts, and what they take for keys, ids and amounts."""

import argparse
import json

import pytest

from farthing.ilp.money import decimal, readable, with_units
from infra.local.commands.relay_address import relay
from infra.local.commands.terminal import (
    event_id,
    event_line,
    filter_json,
    moment,
    npub,
    plain,
    pubkey,
    whole_number,
)

KEY = "3bf0c63fcb93463407af97a5e5ee64fa883d107ef9e558472c4eb9aaaefa459d"
NPUB = "npub180cvv07tjdrrgpa0j7j7tmnyl2yr6yr7l8j4s3evf6u64th6gkwsyjh6w6"


@pytest.mark.parametrize(
    "text", ["\x1b[2J", "\x1b]0;title\x07", "a\x00b", "\u202egnp.exe", "\u2066x", "\x9b31m", "\x7f"]
)
def test_nothing_that_a_terminal_obeys_is_printed(text: str) -> None:
    shown = plain(f"a{text}b")

    assert shown.isprintable() or "\ufffd" in shown
    assert not {"\x1b", "\x07", "\x9b", "\u202e", "\u2066", "\x00", "\x7f"} & set(shown)


def test_ordinary_text_stays_as_it_is() -> None:
    assert plain("grüße 🎩 👩‍🚀 שלום") == "grüße 🎩 👩‍🚀 שלום"
    assert plain("two\nlines\tand a tab") == "two lines and a tab"


def test_an_event_of_any_second_has_a_line() -> None:
    event = {"created_at": 10**12, "pubkey": KEY, "kind": 1, "content": "\x1b[31mred"}

    line = event_line(event)

    assert line.startswith("second 1000000000000")
    assert "\x1b" not in line
    assert moment(0) == "1970-01-01 00:00:00"
    assert moment(253402300799) == "9999-12-31 23:59:59"


def test_keys_are_taken_in_every_form() -> None:
    assert pubkey(KEY) == pubkey(NPUB) == pubkey(f"nostr:{NPUB}") == KEY
    assert npub(KEY) == NPUB
    profile = (
        "nprofile1qqsrhuxx8l9ex335q7he0f09aej04zpazpl0ne2cgukyawd24mayt8gpp4mhxue69uhhytnc9e3k7"
        "mgpz4mhxue69uhkg6nzv9ejuumpv34kytnrdaksjlyr9p"
    )
    assert pubkey(profile) == KEY


@pytest.mark.parametrize("text", ["x", "npub1", KEY.upper(), KEY[:-1], "nsec1vl029mgpspedva04"])
def test_what_is_no_key_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected a public key"):
        pubkey(text)


def test_a_key_is_not_taken_for_an_event() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected an event id"):
        event_id(NPUB)


def test_filters_take_keys_in_every_form() -> None:
    found = json.loads(filter_json(json.dumps({"authors": [NPUB, KEY], "kinds": [1]})))

    assert found == {"authors": [KEY, KEY], "kinds": [1]}
    with pytest.raises(argparse.ArgumentTypeError):
        filter_json("[]")


@pytest.mark.parametrize("text", ["-1", "1.5", "x", "", "१", str(2**64), "9" * 5000])
def test_an_amount_is_a_whole_number(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected a whole number"):
        whole_number(text)
    assert whole_number(str(2**64 - 1)) == 2**64 - 1


@pytest.mark.parametrize("url", ["foo", "ftp://x", "ws://", "ws://user@host", "ws://a b"])
def test_what_is_no_relay_is_refused(url: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected a ws"):
        relay(url)


@pytest.mark.parametrize(
    ("amount", "code", "scale", "text"),
    [
        (3530, "USD", 9, "$0.00000353"),
        (3500, "USD", 9, "$0.0000035"),
        (10**9, "USD", 9, "$1"),
        (0, "USD", 9, "$0"),
        (-5, "EUR", 2, "-€0.05"),
        (3530, "BTC", 11, "3530 msat"),
        (3530, "XRP", 6, "0.00353 XRP"),
        (7, "ABC", 0, "7 ABC"),
    ],
)
def test_money_is_shown_as_people_read_it(amount: int, code: str, scale: int, text: str) -> None:
    assert readable(amount, code, scale) == text


def test_units_stand_beside_money() -> None:
    assert with_units(3530, "USD", 9) == "3530 USD/1e9 ($0.00000353)"
    assert decimal(12345, 2) == "123.45"
