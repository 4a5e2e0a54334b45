"""The filters of REQs: checked, parsed, and cached by their text, because many clients ask for the
same, and ask again and again."""

import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from farthing.context import Agent
from farthing.nostr.filters import Filter, InvalidFilter, parse_filter
from farthing.nostr.messages import ClientMessage, Prefix, Refused, Verb, filters_text
from farthing.store.subscriptions import parsed_bytes, text_of

# This cache has half of the memory for parsed filters. Open subscriptions have the other half.
_SHARE = 2
_LONGEST = 16 * 1024
# A REQ for one event: the look-up takes no longer than handing the REQ to another thread.
_ONE_ID = re.compile(
    r'\s*\{\s*"ids"\s*:\s*\[\s*"[0-9a-f]{64}"\s*\]\s*(,\s*"limit"\s*:\s*1\s*)?\}\s*'
)


class Asked(NamedTuple):
    """The filters, with limits, and a text that is equal for equal filters."""

    filters: Sequence[Filter]
    text: str


class _Remembered:
    def __init__(self, most: int) -> None:
        self._left = most // _SHARE
        self._kept: OrderedDict[str, Asked] = OrderedDict()
        self._mutex = threading.Lock()

    def get(self, text: str) -> Asked | None:
        return self._kept.get(text)

    def keep(self, text: str, asked: Asked) -> None:
        with self._mutex:
            if text in self._kept or len(text) > _LONGEST:
                return
            self._kept[text] = asked
            self._left -= parsed_bytes(text)
            while self._left < 0:
                oldest, _ = self._kept.popitem(last=False)
                self._left += parsed_bytes(oldest)


def _remembered(agent: Agent) -> _Remembered:
    return _Remembered(agent.settings.max_parsed_bytes)


def asked_for(agent: Agent, message: ClientMessage) -> Asked:
    """The filters of a REQ. Raises Refused if they cannot be served."""
    text = message.filters_text
    known = agent.part(_remembered).get(text) if text else None
    if known is not None:
        return known
    filters = parse_filters(agent, message)
    asked = Asked(filters, text_of(filters))
    if text:
        agent.part(_remembered).keep(text, asked)
    return asked


def is_at_hand(agent: Agent, frame: str) -> bool:
    """Whether the answer to a REQ is probably in memory or needs a single read. Then answering
    directly is faster than handing the REQ to another thread."""
    if agent.recall is None:
        return False
    text = filters_text(frame)
    known = agent.part(_remembered).get(text) if text else None
    if known is None:
        return bool(text) and _ONE_ID.fullmatch(text) is not None
    return agent.recall.knows(agent.reader.question(known.text)) or _is_one_id(known.filters)


def _is_one_id(filters: Sequence[Filter]) -> bool:
    ids = filters[0].ids
    return len(filters) == 1 and ids is not None and len(ids) == 1


def parse_filters(agent: Agent, message: ClientMessage) -> list[Filter]:
    settings = agent.settings
    given = message.parts[1:]
    if not given:
        raise Refused(Prefix.INVALID, f"expected a filter with {message.verb}, got none")
    if len(given) > settings.max_filters:
        raise Refused(
            Prefix.INVALID, f"expected at most {settings.max_filters} filters, got {len(given)}"
        )
    try:
        searches = message.verb == Verb.REQ and agent.search.is_on
        filters = [parse_filter(value, may_search=searches) for value in given]
    except InvalidFilter as error:
        raise Refused(Prefix.INVALID, str(error)) from None
    # The limit is for all filters together: each value may cost a read now, and a write for live
    # events.
    values, most = sum(filter.value_count() for filter in filters), settings.max_filter_values
    if values > most:
        raise Refused(Prefix.INVALID, f"expected at most {most} values in filters, got {values}")
    return [filter.with_limit(settings.default_limit, settings.max_limit) for filter in filters]
