"""A few thousand of the mutations that `python -m tests.aether.fuzz` makes by the hundred
thousand."""

from tests.aether.fuzz import run


def test_mutated_frames_messages_and_tokens_only_meet_aethers_errors() -> None:
    outcomes = run(4000, seed=1)

    # Every kind of input reached its reader, and none was waved through as it stood.
    assert outcomes["frame read"] > 500
    assert outcomes["chain capability_refused"] > 500
    assert outcomes["toon invalid_event"] > 50
    assert outcomes["message invalid_message"] > 50
    assert outcomes["message taken"] > 50
