"""Keys follow from the Nostr secret, and a weak key signs nothing."""

import pytest

from farthing.aether import keys
from tests.aether.known import KEYS, VECTORS, pubkey, seed

SECRET = bytes.fromhex(KEYS["owner_nostr_secret"])
EVERYTHING = "01" + "00" * 63  # holds for every message under a key of order one


def test_the_owners_keys_follow_from_the_nostr_secret() -> None:
    assert keys.owner_seed(SECRET).hex() == KEYS["owner_aether_seed"]
    assert keys.public_key(keys.owner_seed(SECRET)) == KEYS["owner_aether_pubkey"]
    assert keys.noise_static(SECRET).hex() == KEYS["relay_noise_private"]
    assert keys.noise_public_key(keys.noise_static(SECRET)).hex() == KEYS["relay_noise_public"]


@pytest.mark.parametrize("name", ["agent", "delegate", "sub", "stranger"])
def test_seeds_give_the_public_keys_of_the_vectors(name: str) -> None:
    assert keys.public_key(seed(name)) == pubkey(name)
    assert not keys.is_weak(pubkey(name))


@pytest.mark.parametrize("sign_bit", [0, 0x80])
@pytest.mark.parametrize("y", VECTORS["weak_key_ys"])
def test_points_of_small_order_are_weak(y: str, sign_bit: int) -> None:
    octets = bytearray.fromhex(y)[::-1]
    octets[31] |= sign_bit

    assert keys.is_weak(octets.hex())
    assert not keys.is_signed(octets.hex(), b"anything", EVERYTHING)


@pytest.mark.parametrize("beyond", range(19))
def test_a_y_that_is_not_reduced_is_weak(beyond: int) -> None:
    assert keys.is_weak((2**255 - 19 + beyond).to_bytes(32, "little").hex())


def test_a_key_that_is_no_point_signs_nothing() -> None:
    assert not keys.is_signed("02" + "00" * 31, b"message", "00" * 64)


def test_a_signature_holds_for_its_message_alone() -> None:
    signature = keys.sign(seed("agent"), b"message")

    assert keys.is_signed(pubkey("agent"), b"message", signature)
    assert not keys.is_signed(pubkey("agent"), b"massage", signature)
    assert not keys.is_signed(pubkey("stranger"), b"message", signature)
