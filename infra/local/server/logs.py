"""The log of the local server: lines for people, or one JSON object per line for programs."""

import json
import logging
import sys
from time import gmtime, strftime
from typing import Any

from farthing.settings import Settings
from infra.local.commands.terminal import plain

# Attributes of every record; all others are fields of one log call.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
# These libraries log too much at our level, such as where each credential was found.
_TALKATIVE = ("aiohttp", "asyncio", "botocore", "pynamodb", "urllib3")


def configure_logs(settings: Settings) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if settings.log_format == "json" else TextLines())
    level = settings.log_level.upper()
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for library in _TALKATIVE:
        logging.getLogger(library).setLevel(max(logging.WARNING, logging.getLevelName(level)))


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """The fields that were given by `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


class TextLines(logging.Formatter):
    """`2026-11-18 16:00:00,000 INFO message name=value`, in one line and without control characters
    for the terminal: parts of a message come from strangers."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        fields = (f"{name}={value}" for name, value in fields_of(record).items())
        return plain(" ".join([super().formatMessage(record), *fields]))

    def formatException(self, ei: Any) -> str:
        return "\n".join(map(plain, super().formatException(ei).splitlines()))


class JsonLines(logging.Formatter):
    """Always one line: text from strangers cannot start a line of its own."""

    def format(self, record: logging.LogRecord) -> str:
        second = strftime("%Y-%m-%dT%H:%M:%S", gmtime(record.created))
        line = {
            "time": f"{second}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)
