"""NIP-98: a header authorizes one request, for a minute, by the key that signed it."""

import json
from base64 import b64encode
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farthing.nostr.events import public_key_of, sign_event, verify
from farthing.nostr.http_auth import InvalidHttpAuth, authorized_key, parse_header

SECRET = b"\x05" * 32
NOW = 1_700_000_000
URL = "https://relay.example/v1/purses/abc?limit=5"
BODY = b'{"kind":1}'


def encoded(value: object) -> str:
    return "Nostr " + b64encode(json.dumps(value).encode()).decode()


def header(
    *,
    url: str = URL,
    method: str = "GET",
    payload: str | None = None,
    kind: int = 27235,
    created_at: int = NOW,
    more: tuple[tuple[str, ...], ...] = (),
    **changes: Any,
) -> str:
    tags = [("u", url), ("method", method), *more]
    if payload is not None:
        tags.append(("payload", payload))
    event = sign_event(SECRET, kind=kind, content="", created_at=created_at, tags=tags)
    return encoded(event.as_dict() | changes)


def check(text: str, **request: Any) -> str:
    asked = {"url": URL, "method": "GET", "body": b"", "now": NOW} | request
    return authorized_key(text, **asked)


def test_signed_request_names_its_key() -> None:
    assert check(header()) == public_key_of(SECRET)


def test_example_of_the_nip_is_refused_because_it_was_signed_with_an_older_tag() -> None:
    url = "https://api.snort.social/api/v1/n5sp/list"
    event = {
        "id": "fe964e758903360f28d8424d092da8494ed207cba823110be3a57dfe4b578734",
        "pubkey": "63fe6318dc58583cfe16810f86dd09e18bfd76aabc24a0081ce2856f330504ed",
        "content": "",
        "kind": 27235,
        "created_at": 1682327852,
        "tags": [["url", url], ["method", "GET"]],
        "sig": "5ed9d8ec958bc854f997bdc24ac337d005af372324747efe4a00e24f4c30437f"
        "f4dd8308684bed467d9d6be3e5a517bb43b1732cc7d33949a3aaf86705c22184",
    }

    verify(parse_header(encoded(event)))
    with pytest.raises(InvalidHttpAuth, match="one u tag"):
        check(encoded(event), url=url, now=1682327852)
    with pytest.raises(InvalidHttpAuth, match="id does not match"):
        check(encoded(event | {"tags": [["u", url], ["method", "GET"]]}), url=url, now=1682327852)


def test_body_is_covered_by_its_hash() -> None:
    text = header(method="POST", payload=sha256(BODY).hexdigest())

    assert check(text, method="POST", body=BODY) == public_key_of(SECRET)
    with pytest.raises(InvalidHttpAuth, match="payload"):
        check(text, method="POST", body=BODY + b" ")
    with pytest.raises(InvalidHttpAuth, match="payload"):
        check(text, method="POST", body=b"")


def test_body_without_a_hash_is_refused() -> None:
    with pytest.raises(InvalidHttpAuth, match="one payload tag"):
        check(header(method="POST"), method="POST", body=BODY)


@pytest.mark.parametrize(
    "url",
    [
        "https://relay.example/v1/purses/abc",
        "https://relay.example/v1/purses/abc?limit=6",
        "https://relay.example/v1/purses/abc?limit=5#",
        "http://relay.example/v1/purses/abc?limit=5",
        "https://other.example/v1/purses/abc?limit=5",
        "https://relay.example:443/v1/purses/abc?limit=5",
        "",
    ],
)
def test_event_of_another_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidHttpAuth, match="u tag"):
        check(header(url=url))


def test_event_of_another_method_is_refused() -> None:
    assert check(header(method="get"))
    with pytest.raises(InvalidHttpAuth, match="method"):
        check(header(method="POST"))


@pytest.mark.parametrize("seconds", [-60, 0, 60])
def test_event_of_this_minute_is_taken(seconds: int) -> None:
    assert check(header(created_at=NOW + seconds))


@pytest.mark.parametrize("seconds", [-300, -61, 61])
def test_event_of_another_minute_is_refused(seconds: int) -> None:
    with pytest.raises(InvalidHttpAuth, match="60 seconds"):
        check(header(created_at=NOW + seconds))


def test_window_is_an_argument() -> None:
    assert check(header(created_at=NOW - 300), seconds_apart=300)
    with pytest.raises(InvalidHttpAuth):
        check(header(created_at=NOW - 6), seconds_apart=5)


def test_event_of_another_kind_is_refused() -> None:
    with pytest.raises(InvalidHttpAuth, match="got 22242"):
        check(header(kind=22242))


@pytest.mark.parametrize(
    "changes",
    [
        {"pubkey": public_key_of(b"\x06" * 32)},
        {"content": "other"},
        {"id": "00" * 32},
        {"sig": "00" * 64},
    ],
)
def test_event_that_was_changed_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(InvalidHttpAuth, match="does not match"):
        check(header(**changes))


@pytest.mark.parametrize("tag", ["u", "method", "payload"])
def test_tag_that_comes_twice_is_refused(tag: str) -> None:
    values = {"u": URL, "method": "POST", "payload": sha256(BODY).hexdigest()}
    text = header(method="POST", payload=values["payload"], more=((tag, values[tag]),))

    with pytest.raises(InvalidHttpAuth, match=f"one {tag} tag"):
        check(text, method="POST", body=BODY)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Nostr",
        "Nostr ",
        "Bearer abc",
        "Nostr ?",
        "Nostr \u00e4",
        "Nostr AAAA",
        "Nostr " + "A" * 9000,
        encoded([]),
        encoded({"kind": 27235}),
        "Nostr " + b64encode(b"[" * 4000).decode(),
    ],
)
def test_header_without_an_event_is_refused(text: str) -> None:
    with pytest.raises(InvalidHttpAuth):
        check(text)


@given(st.text(max_size=60), st.binary(max_size=60))
def test_garbage_is_refused_and_nothing_else(text: str, octets: bytes) -> None:
    for each in (text, "Nostr " + text, "Nostr " + b64encode(octets).decode()):
        with pytest.raises(InvalidHttpAuth):
            check(each)


def test_scheme_may_be_written_in_any_case() -> None:
    assert parse_header("  nostr  " + header().removeprefix("Nostr ") + " ").kind == 27235
