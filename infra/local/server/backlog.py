"""Bytes that wait for slow clients, bounded for each client and for all together.

Room is taken before a frame is queued and given back when it is sent. So the bounds hold for any
size of frames and any number of slow clients.
"""

import threading
import time
from collections.abc import Callable

# A client that reads nothing for so long, while frames wait, is disconnected first.
STALLED_SECONDS = 0.5


class Line:
    """The bytes that wait for one client. `cut` disconnects the client; any thread calls it."""

    __slots__ = ("closed", "cut", "ending", "moved", "waiting")

    def __init__(self, cut: Callable[[], None]) -> None:
        self.cut = cut
        self.waiting = 0
        self.moved = 0.0  # when the client last took something, or was first given something
        self.ending = False  # nobody waits for this client any more
        self.closed = False


class Backlog:
    def __init__(
        self, most_of_one: int, most_of_all: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most_of_one = most_of_one
        self._most_of_all = most_of_all
        self._clock = clock
        self._lines: set[Line] = set()  # those with something waiting
        self._changed = threading.Condition(threading.Lock())
        self._awaited = 0  # threads that wait for room
        self.waiting = 0

    def take(self, line: Line, size: int) -> bool:
        """Take room for a frame; whether there is some."""
        with self._changed:
            return self._take(line, size, line.waiting + size <= self._most_of_one)

    def take_together(self, line: Line, size: int) -> bool:
        """Take room for several frames, if there is some for all of them."""
        with self._changed:
            fits = line.waiting + size <= self._most_of_one
            return fits and self._take(line, size, fits)

    def take_for_reply(self, line: Line, size: int) -> bool:
        """The same for the frame that ends an answer. What came before it may have filled the line,
        and then it goes all the same: there is one for each message of the client."""
        with self._changed:
            return self._take(line, size, line.waiting <= self._most_of_one)

    def take_in_time(self, line: Line, size: int, seconds: float) -> bool:
        """Take room and wait for it, though for no client that has taken nothing for so long."""
        ends = self._clock() + seconds
        with self._changed:
            self._awaited += 1
            try:
                while not self._take(line, size, line.waiting + size <= self._most_of_one):
                    left = min(ends, line.moved + seconds) - self._clock()
                    if left <= 0 or line.ending:
                        return False
                    self._changed.wait(left)
            finally:
                self._awaited -= 1
        return True

    def give_back(self, line: Line, size: int) -> None:
        """The client has it."""
        with self._changed:
            if not line.closed:
                line.moved = self._clock()
                self._set(line, line.waiting - size)

    def end(self, line: Line) -> None:
        """Only what is on its way still goes to this client."""
        with self._changed:
            line.ending = True
            self._changed.notify_all()

    def close(self, line: Line) -> None:
        """Nothing more goes to this client, nor waits for it."""
        with self._changed:
            self._close(line)

    def _take(self, line: Line, size: int, fits: bool) -> bool:
        # A frame larger than any line may be goes alone.
        if line.closed or not (fits or not line.waiting):
            return False
        while self.waiting and self.waiting + size > self._most_of_all:
            stalled = self._fullest_stalled(line)
            if stalled is None:
                return False
            self._close(stalled)
            stalled.cut()
        if not line.waiting:
            line.moved = self._clock()
        self._set(line, line.waiting + size)
        return True

    def _fullest_stalled(self, asking: Line) -> Line | None:
        before = self._clock() - STALLED_SECONDS
        stalled = (line for line in self._lines if line.moved <= before and line is not asking)
        return max(stalled, key=lambda line: line.waiting, default=None)

    def _close(self, line: Line) -> None:
        line.ending = line.closed = True
        self._set(line, 0)

    def _set(self, line: Line, waiting: int) -> None:
        fewer = waiting < line.waiting
        self.waiting += waiting - line.waiting
        line.waiting = waiting
        if waiting:
            self._lines.add(line)
        else:
            self._lines.discard(line)
        if fewer and self._awaited:
            self._changed.notify_all()
