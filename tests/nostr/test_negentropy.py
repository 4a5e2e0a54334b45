"""Negentropy V1: sealed vectors against a naive model, and whole sessions between two sets."""

from collections.abc import Callable, Iterable
from functools import reduce
from hashlib import sha256
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farthing.nostr.negentropy import (
    Initiator,
    InvalidItems,
    InvalidNegentropy,
    Responder,
    SealedVector,
)
from farthing.nostr.negentropy.reconcile import MIN_FRAME_LIMIT
from farthing.nostr.negentropy.wire import MAX_U64

Item = tuple[int, bytes]
LATEST = MAX_U64 - 1
FRAME_LIMITS = st.sampled_from([0, 4096, 60_000])


# The naive model: ids added byte by byte, ranges walked item by item.


def naive_add(total: bytes, event_id: bytes) -> bytes:
    added, carry = bytearray(), 0
    for one, other in zip(total, event_id, strict=True):
        carry, byte = divmod(one + other + carry, 256)
        added.append(byte)
    return bytes(added)


def naive_varint(value: int) -> bytes:
    low = bytes([value % 128])
    return bytes(byte | 128 for byte in naive_varint(value // 128)) + low if value > 127 else low


def naive_fingerprint(items: list[Item]) -> bytes:
    total = reduce(naive_add, (event_id for _, event_id in items), bytes(32))
    return sha256(total + naive_varint(len(items))).digest()[:16]


def below(item: Item, bound: bytes) -> bool:
    timestamp, prefix = int.from_bytes(bound[:8], "big"), bound[8:]
    return item < (timestamp, prefix.ljust(32, b"\0"))


# Sets to reconcile.


def digest(number: int) -> bytes:
    return sha256(str(number).encode()).digest()


def shared_prefix(number: int) -> bytes:
    """Ids in families of up to 256 that differ in their last byte only."""
    return digest(number >> 8)[:31] + bytes([number & 0xFF])


clocks: dict[str, Callable[[Random], int]] = {
    "spread": lambda rnd: 1_700_000_000 + rnd.randrange(10_000_000),
    "few": lambda rnd: 1_700_000_000 + rnd.randrange(3),
    "zero": lambda rnd: 0,
    "latest": lambda rnd: LATEST,
    "extremes": lambda rnd: rnd.choice([0, 1, 2**32, 2**63, LATEST]),
}


def made(count: int, seed: int, clock: str, name: Callable[[int], bytes] = digest) -> list[Item]:
    rnd = Random(seed)
    return [(clocks[clock](rnd), name(number)) for number in rnd.sample(range(count * 2), count)]


def ids(items: Iterable[Item]) -> set[bytes]:
    return {event_id for _, event_id in items}


def converse(
    initiator: Initiator, answer: Callable[[bytes], bytes]
) -> tuple[set[bytes], set[bytes], list[bytes]]:
    have: set[bytes] = set()
    need: set[bytes] = set()
    message: bytes | None = initiator.initiate()
    trace = []
    while message is not None:
        reply = answer(message)
        trace += [message, reply]
        message, more_have, more_need = initiator.reconcile(reply)
        have.update(more_have)
        need.update(more_need)
    return have, need, trace


def assert_reconciles(
    ours: list[Item], theirs: list[Item], our_limit: int = 0, their_limit: int = 0
) -> None:
    initiator = Initiator(SealedVector.seal(ours), our_limit)
    responder = Responder(SealedVector.seal(theirs), their_limit)
    have, need, trace = converse(initiator, responder.reconcile)
    assert have == ids(ours) - ids(theirs)
    assert need == ids(theirs) - ids(ours)
    assert all(len(message) <= (our_limit or len(message)) for message in trace[::2])
    assert all(len(reply) <= (their_limit or len(reply)) for reply in trace[1::2])


# The vectors of the facts.


def test_an_empty_set_initiates_with_an_empty_list() -> None:
    assert Initiator(SealedVector.seal([])).initiate().hex() == "6100000200"


def test_one_item_answers_an_empty_initiate() -> None:
    responder = Responder(SealedVector.seal([(12345, b"\xee" * 32)]))
    assert responder.reconcile(bytes.fromhex("6100000200")).hex() == "6100000201" + "ee" * 32


def test_another_version_is_answered_by_ours() -> None:
    assert Responder(SealedVector.seal([])).reconcile(bytes.fromhex("62aabbccddeeff")) == b"\x61"


def test_thirty_two_items_initiate_with_sixteen_fingerprints() -> None:
    items = [(1_700_000_000 + number // 2, digest(number)) for number in range(32)]
    message = Initiator(SealedVector.seal(items)).initiate()
    assert len(message) == 309
    assert sha256(message).hexdigest() == (
        "8f37a997d92dda978622fa764bf8070534136969134badfbfd5038edd063c619"
    )


# The sealed vector.


@settings(max_examples=50)
@given(st.integers(0, 200), st.integers(), st.sampled_from([*clocks]), st.data())
def test_fingerprint_of_any_range_is_the_naive_one(
    count: int, seed: int, clock: str, data: st.DataObject
) -> None:
    items = made(count, seed, clock)
    lower, upper = sorted(data.draw(st.tuples(*[st.integers(0, count)] * 2)))
    vector = SealedVector.seal(items)
    assert vector.fingerprint(lower, upper) == naive_fingerprint(sorted(items)[lower:upper])


def test_sum_of_ids_wraps_at_256_bits() -> None:
    items = [(number, b"\xff" * 31 + bytes([0xFF - number])) for number in range(100)]
    assert SealedVector.seal(items).fingerprint(0, 100) == naive_fingerprint(items)


@given(
    st.sets(st.tuples(st.integers(0, 3), st.binary(min_size=32, max_size=32)), max_size=40),
    st.integers(0, 4),
    st.binary(max_size=32),
    st.data(),
)
def test_lower_bound_is_the_naive_one(
    items: set[Item], timestamp: int, prefix: bytes, data: st.DataObject
) -> None:
    bound = timestamp.to_bytes(8, "big") + prefix
    start = data.draw(st.integers(0, len(items)))
    vector = SealedVector.seal(items)
    expected = sum(below(item, bound) for item in items)
    assert vector.lower_bound(bound, start) == max(start, expected)


@given(st.permutations(made(70, seed=1, clock="few")))
def test_order_of_items_does_not_matter(items: list[Item]) -> None:
    vector = SealedVector.seal(items)
    assert vector.to_bytes() == SealedVector.seal(sorted(items)).to_bytes()
    assert vector.ids(0, len(vector)) == b"".join(event_id for _, event_id in sorted(items))


def test_newest_first_as_the_store_reads_them() -> None:
    items = sorted(made(3000, seed=2, clock="few"), key=lambda item: (-item[0], item[1]))
    assert SealedVector.seal(iter(items)).to_bytes() == SealedVector.seal(sorted(items)).to_bytes()


@pytest.mark.parametrize(
    "items",
    [
        [(1, b"\1" * 31)],
        [(1, b"\1" * 33)],
        [(-1, b"\1" * 32)],
        [(MAX_U64, b"\1" * 32)],
        [(2**64, b"\1" * 32)],
        [(1, b"\1" * 32), (1, b"\1" * 32)],
        [(2, b"\1" * 32), (1, b"\1" * 32), (2, b"\1" * 32)],
    ],
)
def test_items_that_cannot_be_sealed(items: list[Item]) -> None:
    with pytest.raises(InvalidItems):
        SealedVector.seal(items)


def test_snapshot_is_forty_bytes_an_item_and_reads_back() -> None:
    vector = SealedVector.seal(made(100, seed=3, clock="spread"))
    copy = SealedVector.from_bytes(vector.to_bytes())
    assert len(vector.to_bytes()) == 4000
    assert copy.fingerprint(7, 93) == vector.fingerprint(7, 93)


@pytest.mark.parametrize("damage", [lambda s: s[:-1], lambda s: s[40:] + s[:40], lambda s: s + s])
def test_damaged_snapshot_is_refused(damage: Callable[[bytes], bytes]) -> None:
    snapshot = SealedVector.seal(made(100, seed=3, clock="spread")).to_bytes()
    with pytest.raises(InvalidItems):
        SealedVector.from_bytes(damage(snapshot))


# Whole sessions.


@settings(max_examples=60)
@given(
    st.sampled_from([0, 1, 31, 32, 33, 200, 1500]),
    st.sampled_from([0, 1, 20, 300]),
    st.sampled_from([0, 1, 20, 300]),
    st.integers(0, 2**32),
    st.sampled_from([*clocks]),
    FRAME_LIMITS,
    FRAME_LIMITS,
)
def test_two_sets_reconcile_exactly(
    shared: int, ours: int, theirs: int, seed: int, clock: str, our_limit: int, their_limit: int
) -> None:
    items = made(shared + ours + theirs, seed, clock)
    mine, yours = items[: shared + ours], items[:shared] + items[shared + ours :]
    assert_reconciles(mine, yours, our_limit, their_limit)


# Sums of ids collide when ids share bytes and each side lacks some: {..1, ..4} and {..2, ..3} have
# one fingerprint. With one set inside the other the counts differ, and no ids are too alike.
@settings(max_examples=40)
@given(
    st.integers(0, 700),
    st.integers(0, 2**32),
    st.sampled_from([*clocks]),
    st.floats(0, 1),
    st.booleans(),
    FRAME_LIMITS,
)
def test_ids_that_share_31_bytes_reconcile(
    count: int, seed: int, clock: str, kept: float, swap: bool, limit: int
) -> None:
    every = made(count, seed, clock, shared_prefix)
    rnd = Random(seed)
    some = [item for item in every if rnd.random() < kept]
    ours, theirs = (some, every) if swap else (every, some)
    assert_reconciles(ours, theirs, limit, limit)


@settings(max_examples=100)
@given(
    st.sets(st.integers(0, 80)),
    st.sets(st.integers(0, 80)),
    st.lists(st.sampled_from([0, 1, 7, LATEST]), min_size=81, max_size=81),
)
def test_small_sets_reconcile_exactly(ours: set[int], theirs: set[int], when: list[int]) -> None:
    assert_reconciles(
        [(when[number], digest(number)) for number in ours],
        [(when[number], digest(number)) for number in theirs],
    )


def test_equal_sets_need_one_round() -> None:
    items = made(5000, seed=4, clock="spread")
    initiator = Initiator(SealedVector.seal(items))
    assert Responder(SealedVector.seal(items)).reconcile(initiator.initiate()) == b"\x61"
    assert initiator.reconcile(b"\x61") == (None, [], [])


def test_nothing_is_lost_where_both_messages_are_full_at_the_same_range() -> None:
    # The reference implementation, given these two sets, never tells the seven newest ids.
    rnd = Random(8)

    def items(count: int, since: int, span: int) -> list[Item]:
        return [(since + rnd.randrange(span), rnd.randbytes(32)) for _ in range(count)]

    old = [(10 * number, rnd.randbytes(32)) for number in range(15 * 114)]
    recent = 10 * len(old) + 10
    ours = old + items(114, recent, 20_000)
    theirs = old + items(114, recent, 20_000) + items(7, recent + 20_005, 1000)
    assert_reconciles(ours, theirs, 4096, 4096)


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.sampled_from(["spread", "few"]), FRAME_LIMITS)
def test_responder_rebuilt_from_its_snapshot_at_every_message_answers_the_same(
    seed: int, clock: str, limit: int
) -> None:
    items = made(1000, seed, clock)
    sealed = SealedVector.seal(items[200:])
    snapshot = sealed.to_bytes()

    def take_over(message: bytes) -> bytes:
        return Responder(SealedVector.from_bytes(snapshot), limit).reconcile(message)

    initiator = Initiator(SealedVector.seal(items[:800]), limit)
    kept = converse(initiator, Responder(sealed, limit).reconcile)
    assert converse(initiator, take_over) == kept


@pytest.mark.parametrize("limit", [1, 4095, -1])
def test_frame_limit_is_none_or_at_least_the_minimum(limit: int) -> None:
    with pytest.raises(ValueError, match=str(MIN_FRAME_LIMIT)):
        Responder(SealedVector.seal([]), limit)


@pytest.mark.parametrize("message", ["", "60", "62", "5f", "70", "00"])
def test_initiator_takes_no_other_version(message: str) -> None:
    with pytest.raises(InvalidNegentropy):
        Initiator(SealedVector.seal([])).reconcile(bytes.fromhex(message))


def test_fault_behind_the_cut_is_found_too() -> None:
    responder = Responder(SealedVector.seal(made(1000, seed=5, clock="spread")), 4096)
    empty = Initiator(SealedVector.seal([])).initiate()
    assert len(responder.reconcile(empty)) > 3896
    with pytest.raises(InvalidNegentropy):
        responder.reconcile(empty + b"\x81")


def test_very_many_ranges_are_answered_in_one_frame() -> None:
    responder = Responder(SealedVector.seal(made(1000, seed=6, clock="spread")), 4096)
    message = b"\x61" + (b"\x02\x00\x01" + bytes(16)) * 50_000
    assert 3896 < len(responder.reconcile(message)) <= 4096
