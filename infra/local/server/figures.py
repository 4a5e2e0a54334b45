"""Figures of one machine for the operator's console: how far the consumers of streams are behind,
and how many records they have given up since the start. The meter has the other figures."""

from typing import Final

from farthing.ports.figures import Report, Watched
from infra.local.server.streams import StreamPump

SOURCE: Final = "this process"


class PumpFigures:
    """`pump` is set later: its handlers need the agent, and the agent needs these figures."""

    pump: StreamPump | None = None

    def read(self, watched: Watched, now: int) -> Report | None:
        if self.pump is None:
            return None
        waiting, given_up = self.pump.behind(), self.pump.given_up()
        return Report(SOURCE, 0, now, waiting=waiting, given_up=given_up)
