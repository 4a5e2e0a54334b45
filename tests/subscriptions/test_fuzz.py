"""A quick run of the fuzzer; the long one is `python -m tests.subscriptions.fuzz 100000`."""

from pathlib import Path

from tests.subscriptions.fuzz import agent_at, check, fuzz


def test_1000_mutated_envelopes_get_replies(tmp_path: Path) -> None:
    agent = agent_at(tmp_path)

    outcomes = fuzz(agent, 1000, seed=1)

    check(agent)
    assert {"fulfilled", "F00", "F06"} <= set(outcomes)
    assert "T00" not in outcomes
    agent.engine.close()  # type: ignore[attr-defined]
