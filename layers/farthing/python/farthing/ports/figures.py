"""The port for figures from outside the process: in the cloud, CloudWatch adds up the figures of
all containers. On one machine the process has its own counts, see `meter.Meter.totals`."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol


class Watched(NamedTuple):
    """The subjects of the figures, by their names in the surface."""

    functions: Collection[str] = ()
    queues: Collection[str] = ()  # queues of waiting work
    failures: Collection[str] = ()  # queues of work that was given up


@dataclass(frozen=True, slots=True)
class Report:
    """Figures of the last `hours`. `trouble` says why there are no figures, or no newer ones."""

    source: str
    hours: int
    read_at: int = 0
    # Totals by the names of `meter.Metric`, and the gateway's connections and messages.
    counts: Mapping[str, int] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)  # by function
    waiting: Mapping[str, int] = field(default_factory=dict)  # messages by queue, now
    given_up: Mapping[str, int] = field(default_factory=dict)  # by failure queue, now
    trouble: str = ""


class Figures(Protocol):
    def read(self, watched: Watched, now: int) -> Report | None:
        """The newest report, which may be some minutes old. None if no figures are kept."""
        ...


class NoFigures:
    def read(self, watched: Watched, now: int) -> Report | None:
        return None
