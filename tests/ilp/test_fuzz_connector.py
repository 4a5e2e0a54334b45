"""A quick run of the connector's fuzzer; the long one is `python tests/ilp/fuzz_connector.py`."""

from pathlib import Path

import pytest

from tests.ilp.fuzz_connector import fuzz


def test_mutated_packets_are_answered_without_an_internal_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outcomes = fuzz(5000, tmp_path)
    assert outcomes.total() == 5000
    assert caplog.records == []
    reached = {outcome[:3] for outcome in outcomes}
    assert {"Ful", "F00", "F01", "F02", "F04", "F05", "F06", "F08", "F99", "R00", "R02"} <= reached
