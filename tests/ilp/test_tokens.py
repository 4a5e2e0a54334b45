"""Bearer tokens: SIMPLE and JWT_HS_256, and that neither is kept or logged in the clear."""

import base64
import hmac
import json
import logging
import time
from dataclasses import replace
from typing import Any

import jwt
import pytest

from farthing.connector.requests import OCTETS, authenticate, receive_packet
from farthing.context import Agent
from farthing.ilp.packet import Fulfill, encode
from farthing.ilp.tokens import InvalidToken, is_strong, new_token, seal, unseal
from farthing.ports.http import HttpError
from farthing.settings import Settings
from farthing.store.ledger import Peer, hash_token
from farthing.store.table import StoreError, Table
from tests.ilp.paying import TOKEN, note, packet, rows
from tests.relay.world import OWNER

SECRET = "jwt-secret-with-more-than-thirty-two-bytes-in-it"
HOUR = 3600


@pytest.fixture
def jwt_agent(agent: Agent) -> Agent:
    sealed = seal(OWNER, "signer", SECRET.encode())
    agent.ledger.add_peer(Peer("signer", hash_token("t" * 43), jwt_secret=sealed))
    return agent


def claims(**changes: Any) -> dict[str, Any]:
    # PyJWT goes by the wall clock.
    given = {"sub": "signer", "exp": int(time.time()) + HOUR, **changes}
    return {name: value for name, value in given.items() if value is not None}


def bearer(token: str) -> str:
    return f"Bearer {token}"


def unsigned(header: dict[str, Any], body: dict[str, Any], signature: bytes = b"") -> str:
    parts = [json.dumps(header).encode(), json.dumps(body).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


def test_a_jwt_of_the_peer_is_the_peer(jwt_agent: Agent) -> None:
    token = jwt.encode(claims(), SECRET, "HS256")
    assert authenticate(jwt_agent, bearer(token)).id == "signer"


@pytest.mark.parametrize(
    "changes",
    [
        {"sub": "x" * 1025},
        {"sub": "a#b\0"},
        {"exp": 1},
        {"exp": int(time.time()) - 1},
        {"exp": None},
        {"exp": "soon"},
        {"sub": None},
        {"sub": ""},
        {"sub": "payer"},  # who has no secret
        {"sub": "nobody"},
        {"sub": 7},
        {"sub": ["signer"]},
        {"nbf": int(time.time()) + HOUR},
    ],
)
def test_claims_that_do_not_do(jwt_agent: Agent, changes: dict[str, Any]) -> None:
    try:
        token = jwt.encode(claims(**changes), SECRET, "HS256")
    except (TypeError, jwt.PyJWTError):  # the library will not make what others may send
        head = unsigned({"alg": "HS256", "typ": "JWT"}, claims(**changes)).rstrip(".")
        mac = hmac.digest(SECRET.encode(), head.encode(), "sha256")
        token = f"{head}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"
    assert_nobody(jwt_agent, token)


@pytest.mark.parametrize("algorithm", ["HS384", "HS512"])
def test_another_algorithm_with_the_right_secret(jwt_agent: Agent, algorithm: str) -> None:
    secret = SECRET * 2
    sealed = seal(OWNER, "double", secret.encode())
    jwt_agent.ledger.add_peer(Peer("double", hash_token("d" * 43), jwt_secret=sealed))
    right = jwt.encode(claims(sub="double"), secret, "HS256")
    assert authenticate(jwt_agent, bearer(right)).id == "double"
    assert_nobody(jwt_agent, jwt.encode(claims(sub="double"), secret, algorithm))


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "", "RS256", "ES256K"])
def test_a_jwt_without_its_algorithm_is_nobodys(jwt_agent: Agent, algorithm: str) -> None:
    assert_nobody(jwt_agent, unsigned({"alg": algorithm, "typ": "JWT"}, claims()))
    assert_nobody(jwt_agent, unsigned({"alg": algorithm, "typ": "JWT"}, claims(), b"x" * 32))


@pytest.mark.parametrize("secret", ["another-secret-with-more-than-thirty-two-bytes", TOKEN])
def test_a_jwt_of_another_secret_is_nobodys(jwt_agent: Agent, secret: str) -> None:
    assert_nobody(jwt_agent, jwt.encode(claims(), secret, "HS256"))


def test_a_changed_claim_or_signature(jwt_agent: Agent) -> None:
    head, body, mac = jwt.encode(claims(), SECRET, "HS256").split(".")
    longer = unsigned({}, claims(exp=int(time.time()) + 10 * HOUR)).split(".")[1]
    assert_nobody(jwt_agent, f"{head}.{longer}.{mac}")
    assert_nobody(jwt_agent, f"{head}.{body}.{mac[:-4]}AAAA")
    assert_nobody(jwt_agent, f"{head}.{body}.")
    assert_nobody(jwt_agent, f"..{mac}")


@pytest.mark.parametrize("token", ["..\udce9", "a.b.\udcff", "é.é.é"])
def test_octets_outside_ascii_are_nobodys(jwt_agent: Agent, token: str) -> None:
    """Octets that are not UTF-8 come as surrogates."""
    assert_nobody(jwt_agent, token)


def test_after_the_owners_key_has_changed(jwt_agent: Agent) -> None:
    """What is sealed under the old key cannot be opened, and opens no door."""
    settings = replace(jwt_agent.settings, secret_key="5" * 64)
    assert_nobody(replace(jwt_agent, settings=settings), jwt.encode(claims(), SECRET, "HS256"))


def assert_nobody(agent: Agent, token: str) -> None:
    with pytest.raises(HttpError) as refused:
        authenticate(agent, bearer(token))
    assert refused.value.status == 401


# Kept and logged


def test_seals_are_bound_to_owner_and_peer() -> None:
    sealed = seal(OWNER, "a", b"secret")
    assert unseal(OWNER, "a", sealed) == b"secret"
    assert seal(OWNER, "a", b"secret") != sealed
    assert b"secret" not in sealed
    for owner, peer, octets in [
        (bytes(32), "a", sealed),
        (OWNER, "b", sealed),
        (OWNER, "a", sealed[:-1] + b"\x00\x00"),
        (OWNER, "a", b""),
    ]:
        with pytest.raises((InvalidToken, ValueError)):
            unseal(owner, peer, octets)


def test_no_secret_is_kept_in_the_clear(jwt_agent: Agent) -> None:
    token = jwt.encode(claims(), SECRET, "HS256")
    body = encode(packet(jwt_agent, note()))
    headers = {"content-type": OCTETS, "authorization": bearer(token), "request-id": "r"}
    assert receive_packet(jwt_agent, headers, body).status == 200
    headers["authorization"] = bearer(TOKEN)
    assert receive_packet(jwt_agent, headers, body).status == 200
    kept = repr([list(rows(jwt_agent.engine, table)) for table in Table])
    assert hash_token(TOKEN) in kept
    for secret in (TOKEN, SECRET, token, token.split(".")[2], OWNER.hex()):
        assert secret not in kept


def test_no_secret_is_logged(
    jwt_agent: Agent, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    good, bad = jwt.encode(claims(), SECRET, "HS256"), jwt.encode(claims(), "w" * 40, "HS256")
    body = encode(packet(jwt_agent, note()))
    for token in (TOKEN, good, bad, "unknown-" + TOKEN):
        for octets in (body, b"junk"):
            headers = {"content-type": OCTETS, "authorization": bearer(token)}
            try:
                receive_packet(jwt_agent, headers, octets)
            except HttpError as refused:
                assert token not in str(refused)  # noqa: PT017
    with monkeypatch.context() as patch:

        def fail(*_: object, **__: object) -> None:
            raise StoreError("the disk is full")

        patch.setattr(type(jwt_agent.events), "save", fail)
        headers = {"content-type": OCTETS, "authorization": bearer(TOKEN)}
        receive_packet(jwt_agent, headers, encode(packet(jwt_agent, note("other"))))
    assert "the disk is full" in caplog.text
    for secret in (TOKEN, SECRET, good, bad, OWNER.hex()):
        assert secret not in caplog.text


def test_neither_settings_nor_packets_show_secrets() -> None:
    shown = repr(Settings(secret_key=OWNER.hex(), peer_token=TOKEN))
    assert OWNER.hex() not in shown
    assert TOKEN not in shown
    assert "aa" not in repr(Fulfill(b"\xaa" * 32))


def test_tokens_that_are_strong_enough() -> None:
    assert is_strong(new_token())
    assert is_strong(TOKEN)
    assert is_strong("0123456789abcdef" * 4)
    for weak in ("", "short", "a" * 64, "ab" * 40, new_token()[:40], "a.b." + new_token()):
        assert not is_strong(weak)
    assert len({new_token() for _ in range(100)}) == 100


def test_no_token_begins_with_a_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command would take it for an option."""
    made = iter([b"\xf8" + bytes(31), bytes(32)])
    monkeypatch.setattr("secrets.token_bytes", lambda _: next(made))

    assert new_token() == "A" * 43
