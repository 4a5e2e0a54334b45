"""The limits of one request: index entries for all its filters together, and time. A large request
continues only in the slow lane."""

from types import TracebackType
from typing import Self

from farthing.context import Agent
from farthing.nostr.messages import Prefix, Refused
from farthing.store.planner import ScanAllowance


class TookTooLong(Refused):
    """The request exceeded its time."""

    def __init__(self) -> None:
        super().__init__(Prefix.ERROR, "this took too long, narrow the filter or try again")


class TooBusy(Refused):
    """Other large requests occupy all places of the slow lane."""

    def __init__(self) -> None:
        super().__init__(Prefix.ERROR, "busy with other large requests, try again")


class Effort:
    """The cost of one request, from its beginning to the end of the `with` block."""

    def __init__(self, agent: Agent, seconds: int) -> None:
        self._agent = agent
        self._deadline = agent.clock() + seconds
        self._in_lane = False
        self.allowance = ScanAllowance(agent.settings.max_scan, self._look_up)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._in_lane:
            self._agent.slow_lane.leave()

    def _look_up(self, spent: int) -> None:
        """Called from time to time while index entries are read."""
        self.check_time()
        if spent > self._agent.settings.light_scan:
            self.become_large()

    def become_large(self) -> None:
        """Continue as a large request. Only a few of them run at a time."""
        if self._in_lane:
            return
        self._in_lane = self._agent.slow_lane.enter(self._left)
        if not self._in_lane:
            raise TooBusy
        self.check_time()

    @property
    def _left(self) -> float:
        return max(0.0, self._deadline - self._agent.clock())

    @property
    def is_over_time(self) -> bool:
        return self._agent.clock() > self._deadline

    def check_time(self) -> None:
        if self.is_over_time:
            raise TookTooLong

    def leave_out_since(self, start: float) -> None:
        """Do not count the time of sending frames since `start`. On one machine a slow reader does
        not hold up others. In the cloud the time counts, because the gateway limits the whole
        call."""
        if self._agent.alone:
            self._deadline += self._agent.clock() - start
