"""Conditions: the owner that a message proves, and deliveries that only their receiver fulfils."""

import hmac
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farthing.btp_nips.conditions import (
    check_reply_to,
    delivery_fulfillment,
    fulfillment_for,
    fulfils,
    identify,
)
from farthing.btp_nips.errors import AddressRefused, UnknownCondition
from farthing.btp_nips.identity import (
    key_owner,
    origin_of,
    owner_pubkey,
    peer_owner,
    upstream_id,
)
from farthing.ilp.condition import author_fulfillment, condition_of
from farthing.nostr.events import public_key_of
from tests.btp_nips.vectors import (
    CLIENT,
    CLIENT_SECRET,
    CLOSE,
    CLOSE_FULFILLMENT,
    RELAY_SECRET,
    REQ,
    REQ_CONDITION,
    REQ_FULFILLMENT,
)
from tests.ilp.test_condition import G, N, naive_author_fulfillment, naive_multiply

RELAY = public_key_of(RELAY_SECRET)
KEY, PEER = key_owner(CLIENT), peer_owner("bob")


def identified(condition: bytes, data: bytes = REQ, sender: str | None = CLIENT):
    return identify(condition, data, relay_secret=RELAY_SECRET, sender=sender, peer_id="bob")


class TestOwner:
    def test_the_vectors_prove_the_senders_key(self) -> None:
        assert public_key_of(CLIENT_SECRET) == CLIENT
        assert author_fulfillment(CLIENT_SECRET, bytes.fromhex(RELAY), REQ).hex() == REQ_FULFILLMENT
        assert identified(bytes.fromhex(REQ_CONDITION)) == (KEY, bytes.fromhex(REQ_FULFILLMENT))

        close = bytes.fromhex(CLOSE_FULFILLMENT)
        assert identified(condition_of(close), CLOSE) == (KEY, close)

    @pytest.mark.parametrize("sender", [CLIENT, None, "f" * 64])
    def test_an_interop_condition_speaks_for_the_peer_alone(self, sender: str | None) -> None:
        fulfillment = sha256(REQ).digest()
        assert identified(condition_of(fulfillment), sender=sender) == (PEER, fulfillment)

    @pytest.mark.parametrize(
        ("condition", "data", "sender"),
        [
            (bytes.fromhex(REQ_CONDITION), REQ + b" ", CLIENT),  # other bytes
            (bytes.fromhex(REQ_CONDITION), REQ, RELAY),  # somebody else's name
            (bytes.fromhex(REQ_CONDITION), REQ, None),
            (bytes(32), REQ, CLIENT),
            (b"", REQ, CLIENT),
        ],
    )
    def test_any_other_condition_is_f05(self, condition: bytes, data: bytes, sender) -> None:
        with pytest.raises(UnknownCondition) as refused:
            identified(condition, data, sender)
        assert refused.value.code == "F05"

    def test_an_owner_is_a_key_or_a_peer(self) -> None:
        assert key_owner(CLIENT) == f"key:{CLIENT}"
        assert peer_owner("bob") == "peer:bob"
        assert (owner_pubkey(KEY), owner_pubkey(PEER)) == (CLIENT, None)


class TestDelivery:
    SECRET = st.integers(1, 2**128).map(lambda scalar: scalar.to_bytes(32, "big"))

    @settings(max_examples=10)
    @given(SECRET, SECRET, st.binary(max_size=50))
    def test_relay_and_subscriber_agree(self, relay: bytes, client: bytes, data: bytes) -> None:
        ours = delivery_fulfillment(relay, bytes.fromhex(public_key_of(client)), data)
        theirs = delivery_fulfillment(client, bytes.fromhex(public_key_of(relay)), data)
        assert ours == theirs

    def test_the_fulfillment_agrees_with_a_naive_curve(self) -> None:
        product = int.from_bytes(RELAY_SECRET, "big") * int.from_bytes(CLIENT_SECRET, "big")
        shared = naive_multiply(product % N, G)[0].to_bytes(32, "big")
        key = hmac.digest(shared, b"farthing/delivery/v1", "sha256")

        found = delivery_fulfillment(RELAY_SECRET, bytes.fromhex(CLIENT), b"data")

        assert found == hmac.digest(key, b"data", "sha256")

    def test_a_delivery_sent_back_as_a_message_gives_no_preimage(self) -> None:
        """A hop reflects the packet to the receiver's own relay, under the relay's name."""
        data = b"\x01\x01\x00\x02{}"
        fulfillment = delivery_fulfillment(RELAY_SECRET, bytes.fromhex(CLIENT), data)

        assert fulfillment != naive_author_fulfillment(RELAY_SECRET, CLIENT_SECRET, data)
        with pytest.raises(UnknownCondition):
            identify(
                condition_of(fulfillment),
                data,
                relay_secret=CLIENT_SECRET,
                sender=RELAY,
                peer_id="bob",
            )

    def test_the_preimage_that_the_relay_expects(self) -> None:
        by_key = fulfillment_for(KEY, RELAY_SECRET, b"data")
        assert by_key == delivery_fulfillment(CLIENT_SECRET, bytes.fromhex(RELAY), b"data")
        assert fulfillment_for(PEER, RELAY_SECRET, b"data") == sha256(b"data").digest()
        assert fulfils(by_key, condition_of(by_key))
        assert not fulfils(bytes(32), condition_of(by_key))


class TestReplyTo:
    @pytest.mark.parametrize(
        ("reply_to", "owner", "peer_address"),
        [
            ("g.bob.phone", PEER, "g.bob"),
            ("g.bob", PEER, "g.bob"),
            ("g.carol", KEY, "g.bob"),
            ("g.carol", KEY, ""),
        ],
    )
    def test_an_address_that_may_be_delivered_to_is_accepted(
        self, reply_to: str, owner, peer_address: str
    ) -> None:
        check_reply_to(reply_to, is_ours=False, owner=owner, peer_address=peer_address)

    @pytest.mark.parametrize(
        ("reply_to", "is_ours", "owner", "peer_address"),
        [
            ("g.relay", True, KEY, "g.bob"),
            ("peer.config", False, KEY, "g.bob"),
            ("g.carol", False, PEER, "g.bob"),
            ("g.bobby", False, PEER, "g.bob"),
            ("g.bob", False, PEER, ""),
        ],
    )
    def test_an_address_that_may_not_be_delivered_to_is_refused(
        self, reply_to: str, is_ours: bool, owner, peer_address: str
    ) -> None:
        with pytest.raises(AddressRefused) as refused:
            check_reply_to(reply_to, is_ours=is_ours, owner=owner, peer_address=peer_address)
        assert refused.value.code == "F99"


def test_an_upstream_id_is_the_hash_of_owner_id_and_peer() -> None:
    digest = sha256(f"key:{CLIENT}\0s1\0{RELAY}".encode()).hexdigest()
    assert upstream_id(KEY, "s1", RELAY) == "u-" + digest[:32]
    others = {upstream_id(KEY, "s2", RELAY), upstream_id(PEER, "s1", RELAY)}
    assert len({upstream_id(KEY, "s1", RELAY), upstream_id(KEY, "s1", CLIENT), *others}) == 4


def test_an_origin_is_one_subscription_at_one_relay() -> None:
    origin = origin_of(RELAY, KEY, "s1")
    assert len(origin) == 64
    assert origin not in {origin_of(CLIENT, KEY, "s1"), origin_of(RELAY, KEY, "s2")}
