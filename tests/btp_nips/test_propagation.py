"""Propagation: ends after its hops, is refused in a circle, and stays within its budget."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farthing.btp_nips.errors import LoopDetected
from farthing.btp_nips.messages import Metadata, Propagation
from farthing.btp_nips.propagation import check_loop, onward, share

A, B, C, D, E = ("a" * 64, "b" * 64, "c" * 64, "d" * 64, "e" * 64)
ORIGIN = "0" * 64


def test_path_origin_and_hops_on_the_way() -> None:
    at_a = Metadata(1, propagate=Propagation(3, 900))
    at_b = onward(at_a, A, ORIGIN, 300)
    assert at_b == Metadata(1, propagate=Propagation(2, 300), path=(A,), origin=ORIGIN)
    at_c = onward(at_b, B, "1" * 64, 100)
    assert at_c == Metadata(1, propagate=Propagation(1, 100), path=(A, B), origin=ORIGIN)
    at_d = onward(at_c, C, "2" * 64, 30)
    assert at_d == Metadata(1, path=(A, B, C), origin=ORIGIN)
    assert onward(at_d, D, ORIGIN, 10) is None


def test_hops_that_do_not_fall_end_all_the_same() -> None:
    cheat = Metadata(1, propagate=Propagation(3, 900), path=(A, B, C), origin=ORIGIN)
    assert onward(cheat, D, ORIGIN, 10) is None


def test_our_key_in_the_path_or_an_origin_that_we_know_is_f99() -> None:
    metadata = Metadata(1, path=(A, B), origin=ORIGIN)
    check_loop(metadata, C, is_known_origin=False)
    check_loop(Metadata(1), C, is_known_origin=True)
    for own, known in ((A, False), (B, False), (C, True)):
        with pytest.raises(LoopDetected) as refused:
            check_loop(metadata, own, is_known_origin=known)
        assert refused.value.code == "F99"


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.integers(0, 7))
def test_shares_stay_within_the_budget(budget: int, spent: int, relays: int) -> None:
    each = share(budget, spent, relays)
    assert each >= 0
    assert each == 0 or spent + each * relays <= budget


def test_a_random_net_is_flooded_once_and_pays_no_more_than_the_budget() -> None:
    """Every relay passes a subscription on to all others, circles and all."""
    for seed in range(20):
        dice = random.Random(seed)
        keys = [A, B, C, D, E]
        peers = {
            key: [each for each in keys if each != key and dice.random() < 0.7] for key in keys
        }
        origins: dict[str, set[str]] = {key: set() for key in keys}
        paid = 0
        waiting = [(A, Metadata(1, propagate=Propagation(3, 1000)))]
        taken = []
        while waiting:
            at, metadata = waiting.pop(0)
            try:
                check_loop(metadata, at, is_known_origin=metadata.origin in origins[at])
            except LoopDetected:
                continue
            origins[at].add(metadata.origin or ORIGIN)
            taken.append(at)
            wanted = metadata.propagate
            each = share(wanted.budget, 0, len(peers[at])) if wanted else 0
            price = each // 2  # one half for the next relay itself, one for those behind it
            for peer in peers[at]:
                further = onward(metadata, at, ORIGIN, each - price)
                if further is not None:
                    paid += price
                    waiting.append((peer, further))
        assert len(taken) == len(set(taken)) or taken.count(A) == 1
        assert sorted(set(taken)) == sorted(taken)
        assert paid <= 1000
