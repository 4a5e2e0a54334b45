"""A run of a job; Glue would keep bookmarks here."""

from collections.abc import Mapping

from awsglue.context import GlueContext


class Job:
    def __init__(self, _context: GlueContext) -> None: ...

    def init(self, name: str, arguments: Mapping[str, str]) -> None: ...

    def commit(self) -> None: ...
