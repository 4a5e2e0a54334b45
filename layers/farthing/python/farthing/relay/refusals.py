"""The log of refusals: what was refused to whom, and why. It is bounded for each minute, since
strangers can cause any number of refusals."""

import logging

from farthing.context import Agent

log = logging.getLogger("farthing")

_MINUTE = 60
_MOST_CHARACTERS = 200  # of a field: strangers choose some of them


class RefusalLog:
    def __init__(self, _agent: Agent) -> None:
        self._minute = 0
        self._logged = 0
        self._left_out = 0

    def note(self, minute: int, most: int, what: str, fields: dict[str, str]) -> None:
        if minute != self._minute:
            if self._left_out:
                log.info("more was refused", extra={"refusals": self._left_out})
            self._minute, self._logged, self._left_out = minute, 0, 0
        if self._logged >= most:
            self._left_out += bool(most)
            return
        self._logged += 1
        log.info("refused %s", what[:_MOST_CHARACTERS], extra=fields)


def note_refusal(agent: Agent, what: str, reason: str, **who: str | None) -> None:
    """Log that something was refused. `who` names the other side, as far as it is known."""
    known = {name: value[:_MOST_CHARACTERS] for name, value in who.items() if value}
    most = agent.settings.refusals_logged_per_minute
    fields = {"reason": reason[:_MOST_CHARACTERS], **known}
    agent.part(RefusalLog).note(agent.now // _MINUTE, most, what, fields)
