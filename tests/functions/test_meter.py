"""Metrics in CloudWatch's embedded format: a line of log for a call that counted, and only then."""

import json
import warnings

import pytest

from farthing.aws.meter import PowertoolsMeter
from farthing.ports.meter import Metric


def test_a_call_that_counts_writes_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    meter = PowertoolsMeter("farthing-")
    meter.count(Metric.EVENTS_STORED, 2)
    meter.flush()
    (line,) = capsys.readouterr().out.splitlines()
    written = json.loads(line)
    assert written[Metric.EVENTS_STORED] == [2]
    assert written["service"] == "relay"


def test_a_call_that_counts_nothing_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    meter = PowertoolsMeter("farthing-")
    meter.count(Metric.EVENTS_STORED)
    meter.flush()
    capsys.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        meter.flush()
    assert capsys.readouterr() == ("", "")
