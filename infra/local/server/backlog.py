"""Bytes that wait for slow clients, limited for each client and for all together.

Room is reserved before a frame is queued and freed when the frame is sent. So the limits hold for
any size of frames and any number of slow clients.
"""

import threading
import time
from collections.abc import Callable

# A client that has read nothing for this long, while frames wait, is disconnected first.
STALLED_SECONDS = 0.5
# Frames that end an answer have an eighth of the room for all on top. Such a frame cannot wait, and
# without it a client that reads would be disconnected because others have filled the room.
_FOR_REPLIES = 8


class Line:
    """The bytes that wait for one client. `cut` disconnects the client; any thread calls it."""

    __slots__ = ("closed", "cut", "ending", "moved", "waiting")

    def __init__(self, cut: Callable[[], None]) -> None:
        self.cut = cut
        self.waiting = 0
        self.moved = 0.0  # when the client last read bytes, or when the first frame was queued
        self.ending = False  # no thread may wait for room in this line any more
        self.closed = False


class Backlog:
    def __init__(
        self, most_of_one: int, most_of_all: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most_of_one = most_of_one
        self._most_of_all = most_of_all
        self._most_with_replies = most_of_all + most_of_all // _FOR_REPLIES
        self._clock = clock
        self._lines: set[Line] = set()  # those with something waiting
        self._mutex = threading.Lock()
        self._changed = threading.Condition(
            self._mutex
        )  # entered by those who wait, and more slowly
        self._awaited = 0  # threads that wait for room
        self.waiting = 0

    @property
    def has_room_for_one(self) -> bool:
        """Whether one more client could fill its line."""
        return self.waiting + self._most_of_one <= self._most_of_all

    def is_filled_by_others(self, line: Line, size: int) -> bool:
        """Whether the frame would fit into the client's own line."""
        with self._mutex:
            return not line.ending and line.waiting + size <= self._most_of_one

    def take(self, line: Line, size: int) -> bool:
        """Reserve room for a frame. Returns whether there was enough."""
        with self._mutex:
            return self._take(line, size, line.waiting + size <= self._most_of_one)

    def take_together(self, line: Line, size: int) -> bool:
        """Reserve room for several frames, if there is enough for all of them."""
        with self._mutex:
            fits = line.waiting + size <= self._most_of_one
            return fits and self._take(line, size, fits)

    def take_for_reply(self, line: Line, size: int) -> bool:
        """Reserve room for the frame that ends an answer. It may exceed the limit if earlier frames
        have filled the line: there is only one such frame for each message of the client."""
        with self._mutex:
            fits = line.waiting <= self._most_of_one
            return self._take(line, size, fits, self._most_with_replies)

    def take_in_time(self, line: Line, size: int, seconds: float) -> bool:
        """Wait until there is room for a frame. Gives up after so many seconds, or when the client
        has read nothing for so long."""
        ends = self._clock() + seconds
        with self._changed:
            self._awaited += 1
            try:
                while not self._take(line, size, line.waiting + size <= self._most_of_one):
                    # A client that has nothing to read is not slow: others fill the room.
                    until = min(ends, line.moved + seconds) if line.waiting else ends
                    left = until - self._clock()
                    if left <= 0 or line.ending:
                        return False
                    self._changed.wait(left)
            finally:
                self._awaited -= 1
        return True

    def give_back(self, line: Line, size: int) -> None:
        """Free the room of bytes that were sent to the client."""
        with self._mutex:
            if not line.closed:
                line.moved = self._clock()
                self._set(line, line.waiting - size)

    def end(self, line: Line) -> None:
        """Let the client have the frames that are queued, and refuse to wait for more room."""
        with self._mutex:
            line.ending = True
            self._changed.notify_all()

    def close(self, line: Line) -> None:
        """Free all room of this client and take no more frames for it."""
        with self._mutex:
            self._close(line)

    def _take(self, line: Line, size: int, fits: bool, most: int | None = None) -> bool:
        # A frame above the limit of a line is taken if the line is empty.
        if line.closed or not (fits or not line.waiting):
            return False
        most = self._most_of_all if most is None else most
        while self.waiting and self.waiting + size > most:
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
