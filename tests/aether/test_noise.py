"""Noise XX: the vectors, a published one, another implementation, and what must be refused."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from noise.connection import Keypair, NoiseConnection

from farthing.aether import messages, noise
from farthing.aether.keys import noise_public_key
from farthing.aether.messages import Format
from farthing.aether.noise import Handshake, NoiseRefused, Session
from tests.aether.known import VECTORS

OURS = {
    name: bytes.fromhex(value)
    for name, value in VECTORS["noise"].items()
    if name not in ("hello", "welcome", "transport")
}
STATIC, EPHEMERAL = OURS["relay_static"], OURS["relay_ephemeral"]

# From the test vectors of the Haskell library `cacophony`.
PUBLISHED = {
    "prologue": "4a6f686e2047616c74",
    "init_static": "e61ef9919cde45dd5f82166404bd08e38bceb5dfdfded0a34c8df7ed542214d1",
    "init_ephemeral": "893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a",
    "resp_static": "4a3acbfdb163dec651dfa3194dece676d437029c62a408b4c5ea9114246e4893",
    "resp_ephemeral": "bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b",
    "handshake_hash": "c8e5f64e846193be2a834104c2a009868d6c9f3bd3c186299888b488b2f1f58e",
}
PUBLISHED_MESSAGES = [
    (
        "4c756477696720766f6e204d69736573",
        "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c7944"
        "4c756477696720766f6e204d69736573",
    ),
    (
        "4d757272617920526f746862617264",
        "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843"
        "81cbad1f276e038c48378ffce2b65285e08d6b68aaa3629a5a8639392490e5b9"
        "bd5269c2f1e4f488ed8831161f19b7815528f8982ffe09be9b5c412f8a0db50f"
        "8814c7194e83f23dbd8d162c9326ad",
    ),
    (
        "462e20412e20486179656b",
        "c7195ffacac1307ff99046f219750fc47693e23c3cb08b89c2af808b444850a8"
        "0ae475b9df0f169ae80a89be0865b57f58c9fea0d4ec82a286427402f113e4b6"
        "ae769a1d95941d49b25030",
    ),
    ("4361726c204d656e676572", "96763ed773f8e47bb3712f0e29b3060ffc956ffc146cee53d5e1df"),
    (
        "4a65616e2d426170746973746520536179",
        "3e40f15f6f3a46ae446b253bf8b1d9ffb6ed9b174d272328ff91a7e2e5c79c07f5",
    ),
    (
        "457567656e2042f6686d20766f6e2042617765726b",
        "eb3f3515110702e047a6c9da4478b6ead94873c11c0f2d710ddb3f09fce024b3a58502ae3f",
    ),
]


def respond(
    prologue: bytes, message_1: bytes, *, static: bytes, ephemeral: bytes
) -> tuple[Handshake, bytes]:
    state = noise.start(initiator=False, prologue=prologue)
    return noise.respond_from(state, message_1, static=static, ephemeral=ephemeral)


def sealed_and_restored(state: Handshake) -> Handshake:
    """As a function does that keeps nothing in memory."""
    return Handshake.from_bytes(state.to_bytes())


def sessions(prologue: bytes = b"") -> tuple[Session, Session]:
    """The client's and the relay's session, with the vectors' keys."""
    client = noise.start(initiator=True, prologue=prologue)
    client, first = noise.write_message(client, OURS["client_static"], OURS["client_ephemeral"])
    relay, second = respond(prologue, first, static=STATIC, ephemeral=EPHEMERAL)
    client, _ = noise.read_message(client, OURS["client_static"], second)
    client, third = noise.write_message(client, OURS["client_static"])
    return noise.finish(client), noise.complete(sealed_and_restored(relay), third, static=STATIC)


# The vectors.


def test_the_prologue_is_made_of_hello_and_welcome() -> None:
    hello, welcome = (VECTORS["noise"][name].encode() for name in ("hello", "welcome"))

    assert noise.prologue(hello, welcome) == OURS["prologue"]


def test_a_handshake_gives_the_bytes_and_keys_of_the_vectors() -> None:
    static = OURS["client_static"]
    client = noise.start(initiator=True, prologue=OURS["prologue"])
    client, first = noise.write_message(client, static, OURS["client_ephemeral"])
    assert first == OURS["message_1"]
    relay, second = respond(OURS["prologue"], first, static=STATIC, ephemeral=EPHEMERAL)
    assert second == OURS["message_2"]
    client, _ = noise.read_message(sealed_and_restored(client), static, second)
    client, third = noise.write_message(client, static)
    assert third == OURS["message_3"]
    claimed = OURS["client_static_public"].hex()
    at_relay = noise.complete(sealed_and_restored(relay), third, static=STATIC, claimed=claimed)
    at_client = noise.finish(client)

    assert at_client.handshake_hash == at_relay.handshake_hash == OURS["handshake_hash"]
    assert at_client.send_key == at_relay.receive_key == OURS["key_client_to_relay"]
    assert at_client.receive_key == at_relay.send_key == OURS["key_relay_to_client"]
    assert at_relay.remote_static == OURS["client_static_public"]
    assert at_client.remote_static == OURS["relay_static_public"]
    assert Session.from_bytes(at_relay.to_bytes()) == at_relay


@pytest.mark.parametrize("vector", VECTORS["noise"]["transport"], ids=lambda vector: vector["from"])
def test_a_sealed_frame_has_the_bytes_of_the_vectors(vector: dict[str, Any]) -> None:
    client, relay = sessions(OURS["prologue"])
    sender, receiver = (client, relay) if vector["from"] == "client" else (relay, client)
    inner, payload = bytes.fromhex(vector["inner_frame"]), bytes.fromhex(vector["payload"])

    assert noise.seal(sender.send_key, vector["counter"], inner) == payload
    assert noise.unseal(receiver.receive_key, payload) == (vector["counter"], inner)
    outer = messages.read(bytes.fromhex(vector["outer_frame"]))
    assert outer.octets == payload
    assert messages.read(inner).octets == vector["inner_json"].encode()


def test_a_handshake_gives_the_bytes_of_a_published_vector() -> None:
    known = {name: bytes.fromhex(value) for name, value in PUBLISHED.items()}
    sides = [noise.start(initiator=each, prologue=known["prologue"]) for each in (True, False)]
    statics = [known["init_static"], known["resp_static"]]
    ephemerals = [known["init_ephemeral"], known["resp_ephemeral"]]
    for number, (payload, ciphertext) in enumerate(PUBLISHED_MESSAGES[:3]):
        from_, to = number % 2, 1 - number % 2
        sides[from_], message = noise.write_message(
            sides[from_], statics[from_], ephemerals[from_], bytes.fromhex(payload)
        )
        assert message.hex() == ciphertext
        sides[to], read = noise.read_message(sides[to], statics[to], message)
        assert read.hex() == payload
    initiator, responder = map(noise.finish, sides)

    assert initiator.handshake_hash == responder.handshake_hash == known["handshake_hash"]
    for number, (payload, ciphertext) in enumerate(PUBLISHED_MESSAGES[3:]):
        sender = initiator if number % 2 else responder
        sealed = noise.seal(sender.send_key, number // 2, bytes.fromhex(payload))
        assert sealed[noise.COUNTER :].hex() == ciphertext


# Another implementation.


def library(initiator: bool, static: bytes, prologue: bytes) -> NoiseConnection:
    connection = NoiseConnection.from_name(noise.PROTOCOL.encode())
    if initiator:
        connection.set_as_initiator()
    else:
        connection.set_as_responder()
    connection.set_keypair_from_private_bytes(Keypair.STATIC, static)
    connection.set_prologue(prologue)
    connection.start_handshake()
    return connection


KEY = st.binary(min_size=32, max_size=32)


@settings(max_examples=20)
@given(KEY, KEY, KEY, st.binary(max_size=50), st.booleans(), st.binary(max_size=300))
def test_the_library_understands_us_and_we_it(
    our_static: bytes,
    our_ephemeral: bytes,
    their_static: bytes,
    prologue: bytes,
    initiator: bool,
    inner: bytes,
) -> None:
    state = noise.start(initiator=initiator, prologue=prologue)
    other = library(not initiator, their_static, prologue)
    while not state.is_finished:
        if state.is_our_turn:
            state, message = noise.write_message(state, our_static, our_ephemeral)
            other.read_message(message)
        else:
            state, _ = noise.read_message(state, our_static, bytes(other.write_message()))
        state = sealed_and_restored(state)
    session = noise.finish(state)

    assert session.remote_static == noise_public_key(their_static)
    assert session.handshake_hash == other.get_handshake_hash()
    for counter in range(3):
        payload = noise.seal(session.send_key, counter, inner)
        assert other.decrypt(payload[noise.COUNTER :]) == inner
        answer = counter.to_bytes(8, "big") + other.encrypt(inner)
        assert noise.unseal(session.receive_key, answer) == (counter, inner)


# What must be refused.


def test_each_direction_has_its_own_key() -> None:
    client, _ = sessions()
    payload = noise.seal(client.send_key, 0, b"inner")

    with pytest.raises(NoiseRefused):
        noise.unseal(client.receive_key, payload)
    assert client.send_key != client.receive_key
    assert noise.seal(client.send_key, 1, b"inner")[8:] != payload[8:]


def test_every_altered_octet_is_noticed() -> None:
    client, relay = sessions()
    payload = noise.seal(client.send_key, 7, b"inner")

    for at in range(len(payload)):
        altered = bytearray(payload)
        altered[at] ^= 1
        with pytest.raises(NoiseRefused):
            noise.unseal(relay.receive_key, bytes(altered))
    for cut in (payload[:-1], payload[:23], payload[:8], b"", payload + b"\x00"):
        with pytest.raises(NoiseRefused):
            noise.unseal(relay.receive_key, cut)


def test_counters_may_come_out_of_order() -> None:
    client, relay = sessions()
    payloads = [noise.seal(client.send_key, counter, bytes([counter])) for counter in range(5)]

    for at in (3, 0, 4, 1, 2):
        assert noise.unseal(relay.receive_key, payloads[at]) == (at, bytes([at]))


def test_the_largest_inner_frame_and_the_last_counter() -> None:
    client, relay = sessions()
    largest = bytes(65_519)

    payload = noise.seal(client.send_key, noise.MAX_COUNTER, largest)
    assert noise.unseal(relay.receive_key, payload) == (noise.MAX_COUNTER, largest)
    with pytest.raises(NoiseRefused):
        noise.seal(client.send_key, 0, largest + b"x")
    with pytest.raises(NoiseRefused):
        noise.seal(client.send_key, 2**64 - 1, b"")
    with pytest.raises(NoiseRefused):
        noise.counter_of(b"\xff" * 24)
    with pytest.raises(NoiseRefused):
        noise.unseal(relay.receive_key, payload + b"x")


def test_every_altered_handshake_octet_is_noticed() -> None:
    static = OURS["client_static"]
    client = noise.start(initiator=True, prologue=b"p")
    client, first = noise.write_message(client, static, OURS["client_ephemeral"])
    relay, second = respond(b"p", first, static=STATIC, ephemeral=EPHEMERAL)
    after, _ = noise.read_message(client, static, second)
    _, third = noise.write_message(after, static)

    def altered(message: bytes, at: int) -> bytes:
        return message[:at] + bytes([message[at] ^ 1]) + message[at + 1 :]

    for at in range(len(second)):
        with pytest.raises(NoiseRefused):
            noise.read_message(client, static, altered(second, at))
    for at in range(len(third)):
        with pytest.raises(NoiseRefused):
            noise.complete(relay, altered(third, at), static=STATIC)
    for at in range(0, len(first), 8):  # not noticed before the answer is read
        _, answer = respond(b"p", altered(first, at), static=STATIC, ephemeral=EPHEMERAL)
        with pytest.raises(NoiseRefused):
            noise.read_message(client, static, answer)


def test_a_downgrade_ends_the_handshake() -> None:
    """Whoever changes HELLO on its way changes the prologue of one side."""
    static = OURS["client_static"]
    client = noise.start(initiator=True, prologue=noise.prologue(b"hello", b"welcome"))
    client, first = noise.write_message(client, static, OURS["client_ephemeral"])
    other = noise.prologue(b"jello", b"welcome")
    _, second = respond(other, first, static=STATIC, ephemeral=EPHEMERAL)

    with pytest.raises(NoiseRefused):
        noise.read_message(client, static, second)


def test_the_prologue_cannot_be_shifted() -> None:
    assert noise.prologue(b"ab", b"c") != noise.prologue(b"a", b"bc")


def test_the_key_in_hello_must_be_the_one_that_is_proved() -> None:
    static = OURS["client_static"]
    client = noise.start(initiator=True, prologue=b"")
    client, first = noise.write_message(client, static, OURS["client_ephemeral"])
    relay, second = respond(b"", first, static=STATIC, ephemeral=EPHEMERAL)
    client, _ = noise.read_message(client, static, second)
    _, third = noise.write_message(client, static)

    with pytest.raises(NoiseRefused):
        noise.complete(relay, third, static=STATIC, claimed="00" * 32)
    assert noise.complete(relay, third, static=STATIC).remote_static == noise_public_key(static)


def test_handshake_payloads_are_empty() -> None:
    client = noise.start(initiator=True, prologue=b"")
    _, first = noise.write_message(client, OURS["client_static"], OURS["client_ephemeral"], b"x")

    with pytest.raises(NoiseRefused):
        respond(b"", first, static=STATIC, ephemeral=EPHEMERAL)


@pytest.mark.parametrize("message", [b"", bytes(31), bytes(32), b"\x01" + bytes(31), bytes(70000)])
def test_a_short_or_weak_first_message_is_refused(message: bytes) -> None:
    with pytest.raises(NoiseRefused):
        respond(b"", message, static=STATIC, ephemeral=EPHEMERAL)


def test_messages_out_of_turn_are_refused() -> None:
    client = noise.start(initiator=True, prologue=b"")
    relay = noise.start(initiator=False, prologue=b"")

    with pytest.raises(NoiseRefused):
        noise.write_message(relay, STATIC, EPHEMERAL)
    with pytest.raises(NoiseRefused):
        noise.read_message(client, STATIC, bytes(32))
    with pytest.raises(NoiseRefused):
        noise.finish(relay)
    relay, _ = respond(b"", OURS["message_1"], static=STATIC, ephemeral=EPHEMERAL)
    with pytest.raises(NoiseRefused):
        noise.write_message(relay, STATIC, EPHEMERAL)


@pytest.mark.parametrize("chosen", Format)
def test_inner_frames_are_in_the_negotiated_format(chosen: Format) -> None:
    client, relay = sessions()
    payload = noise.seal(relay.send_key, 0, messages.inner(messages.ack(), chosen))

    message = messages.read(noise.unseal(client.receive_key, payload)[1])

    assert message.body == {"type": "ack"}
    assert message.envelope.format is chosen


def test_what_was_not_sealed_by_us_does_not_restore() -> None:
    for restore in (Handshake.from_bytes, Session.from_bytes):
        with pytest.raises(ValueError, match="octets"):
            restore(b"short")
