"""Processes that read for the server, so that reads use more than one core. This module starts and
asks them, and replaces those that die or hang. The server itself reads what none of them
answers."""

import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from struct import Struct
from typing import Final

from infra.local.server import reading
from infra.local.server.reading import FAILED, FOUND, READY, Ended

log = logging.getLogger("farthing")

_MOST_BY_DEFAULT: Final = 2
_START_SECONDS: Final = 60.0
_ANSWER_SECONDS: Final = 5.0
_END_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 10.0  # after a process that did not start
# Seconds to wait for a free process. After that, the thread reads by itself.
_WAIT_SECONDS: Final = 0.5
_TIMEVAL: Final = Struct("@ll")
# The variables that a process gets, because its interpreter may need them. It gets no others,
# because they include keys and tokens.
_NEEDED: Final = ("LD_LIBRARY_PATH", "SYSTEMROOT")


def number_of_readers(wanted: int | None) -> int:
    """The number of processes that the setting means on this machine."""
    if wanted is not None:
        return wanted
    return min(_MOST_BY_DEFAULT, len(os.sched_getaffinity(0)) - 1)


class _Process:
    def __init__(self, database: Path) -> None:
        path = os.pathsep.join(os.path.abspath(each) for each in sys.path)
        needed = {name: os.environ[name] for name in _NEEDED if name in os.environ}
        self._connection, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603
                # With -P, the process imports no modules from the folder that it is started in.
                [sys.executable, "-P", "-m", reading.__name__, str(database)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env={**needed, "PYTHONPATH": path},
            )

    @property
    def pid(self) -> int:
        pid: int = self._process.pid
        return pid

    def wait_for_start(self) -> None:
        self._limit(_START_SECONDS)
        said = reading.receive(self._connection)
        if said != READY:
            raise Ended(said[1:].decode())

    def limit(self, seconds: float) -> None:
        """Set the time limit of an answer."""
        self._limit(seconds)

    def _limit(self, seconds: float) -> None:
        # A timeout of the kernel. Python's own would need another call for each read.
        limit = _TIMEVAL.pack(int(seconds), int(seconds % 1 * 1_000_000))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self._connection.setsockopt(socket.SOL_SOCKET, option, limit)

    def ask(self, request: bytes) -> bytes:
        reading.send(self._connection, request)
        return reading.receive(self._connection)

    def hang_up(self) -> None:
        """Close the connection. The process ends when it notices."""
        with suppress(OSError):  # it is gone already
            self._connection.shutdown(socket.SHUT_RDWR)

    def end(self, seconds: float) -> None:
        self.hang_up()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._connection.close()


class LocalReaderProcesses:
    """See `store.answers`. `is_hurried` says whether the caller must not wait for others."""

    def __init__(
        self,
        database: Path,
        number: int,
        light_scan: int,
        is_hurried: Callable[[], bool] = lambda: False,
        *,
        answer_seconds: float = _ANSWER_SECONDS,
    ) -> None:
        self._database = database
        self._light_scan = light_scan
        self._is_hurried = is_hurried
        self._answer_seconds = answer_seconds
        self._free: SimpleQueue[_Process] = SimpleQueue()
        self._mutex = threading.Lock()
        self._processes: set[_Process] = set()
        self._running: set[_Process] = set()  # all started processes, free or not
        self._starting: set[threading.Thread] = set()
        self._stopping = threading.Event()
        for _ in range(number):
            self._start_one()

    def pids(self) -> list[int]:
        with self._mutex:
            return [process.pid for process in self._processes]

    def wait_for_start(self) -> None:
        """Wait until all processes run."""
        with self._mutex:
            starting = list(self._starting)
        for thread in starting:
            thread.join()

    def answer(self, filters: str, now: int, most: int) -> bytes | None:
        if most <= 0 or not self._running or self._is_hurried():
            return None
        try:
            process = self._free.get(timeout=_WAIT_SECONDS)
        except Empty:
            return None
        try:
            answer = process.ask(reading.request(filters, now, min(most, self._light_scan)))
        except OSError as error:
            if not self._stopping.is_set():
                log.warning("a reader process is replaced", extra={"error": str(error)})
            self._replace(process)
            return None
        self._free.put(process)
        if answer[:1] == FAILED:
            log.warning("a reader process could not read", extra={"error": answer[1:].decode()})
        return answer[1:] if answer[:1] == FOUND else None

    def stop(self) -> None:
        """End all processes. Call this after the last question."""
        self._stopping.set()
        with self._mutex:
            processes, starting = list(self._processes), list(self._starting)
        for process in processes:
            process.hang_up()
        for thread in starting:
            thread.join()
        for process in processes:
            process.end(_END_SECONDS)

    def _replace(self, process: _Process) -> None:
        self._discard(process)
        self._start_one()

    def _discard(self, process: _Process) -> None:
        with self._mutex:
            self._processes.discard(process)
            self._running.discard(process)
        process.end(0)

    def _start_one(self) -> None:
        thread = threading.Thread(target=self._start, name="reader-start", daemon=True)
        with self._mutex:
            self._starting.add(thread)
        thread.start()

    def _start(self) -> None:
        while not self._stopping.is_set():
            try:
                process = _Process(self._database)
            except OSError as error:
                self._note_failure(error)
                continue
            with self._mutex:
                self._processes.add(process)
            if self._stopping.is_set():
                process.hang_up()
            try:
                process.wait_for_start()
                process.limit(self._answer_seconds)
            except OSError as error:
                self._discard(process)
                self._note_failure(error)
            else:
                with self._mutex:
                    self._running.add(process)
                self._free.put(process)
                break
        with self._mutex:
            self._starting.discard(threading.current_thread())

    def _note_failure(self, error: OSError) -> None:
        if not self._stopping.is_set():
            log.warning("a reader process did not start", extra={"error": str(error)})
        self._stopping.wait(_PAUSE_SECONDS)
