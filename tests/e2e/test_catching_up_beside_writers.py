"""Catching up in each way while writers go on: nothing is lost. `python -m tests.bench follow` does
the same with 100,000 events."""

from pathlib import Path

import pytest

from tests.bench.follow import WAYS, in_a_process, lost_events, source, writers


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_lost_while_writers_go_on(tmp_path: Path, way: str) -> None:
    number = 300
    with source(tmp_path / "there", number) as relay:
        with writers(relay) as written:
            found = in_a_process(relay.url, way, tmp_path / "here")
        assert found["events"] >= number
        assert lost_events(relay.url, way, tmp_path / "here", number, written) == 0
