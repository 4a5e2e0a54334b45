"""A quick run of the fuzzer; the long one is `python -m tests.btp_nips.fuzz 100000`."""

from farthing.btp_nips.messages import Message
from tests.btp_nips.fuzz import fuzz, messages


def test_mutated_envelopes_are_read_or_refused() -> None:
    outcomes = fuzz(4000, seed=1)

    reached = {name for name in outcomes if outcomes[name] > 5}
    assert {"F06 header_invalid", "F00 body_invalid", "F00 filter_invalid"} <= reached
    assert {type(message).__name__ for message in messages()} <= reached


def test_the_fuzzer_starts_from_every_message() -> None:
    assert {type(message) for message in messages()} == set(Message.__args__)
