"""The generated tables of the docs: where each stands, and what it is made from.

`make docs` writes them anew; `tests/test_docs.py` holds the pages to them.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from farthing import settings, surface
from infra import deployment
from tests.rehearsal import differences

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", *sorted(DOCS.glob("*.md")))
# A command in a block of code: with a prompt and variables or without, over one line or several.
_TYPED = re.compile(
    r"^(?:\$ )?(?:FARTHING_\w+=\S+ )*(?:\.venv/bin/)?farthing ((?:.*\\\n)*.*)$", re.MULTILINE
)
# Also those of curl.
_SHELL = re.compile(
    r"^(?:\$ )?(?:FARTHING_\w+=\S+ )*(?:(?:\.venv/bin/)?farthing )?"
    r"((?:(?<=farthing )|curl )(?:.*\\\n)*.*)$",
    re.MULTILINE,
)
# A command within a sentence, which may be broken over two lines.
_IN_A_SENTENCE = re.compile(r"`farthing ([^`]+)`")


class Generated(NamedTuple):
    """A part of a page, between `<!-- mark -->` and `<!-- /mark -->`."""

    page: Path
    mark: str
    make: Callable[[], str]

    @property
    def opening(self) -> str:
        return f"<!-- {self.mark} -->\n"

    @property
    def closing(self) -> str:
        return f"<!-- /{self.mark} -->"

    def stands(self) -> str:
        """What the page says now."""
        text = self.page.read_text()
        return text.partition(self.opening)[2].partition(self.closing)[0].strip()

    def write(self) -> None:
        text = self.page.read_text()
        before, _, rest = text.partition(self.opening)
        _, _, after = rest.partition(self.closing)
        self.page.write_text(f"{before}{self.opening}{self.make()}\n{self.closing}{after}")


def typed_commands(page: Path) -> list[str]:
    """The `farthing` commands in the page's blocks of code, without `farthing` itself."""
    return [line.replace("\\\n", " ") for line in _TYPED.findall(page.read_text())]


def shell_commands(page: Path) -> list[str]:
    """The same, and the commands of curl, in their order."""
    return [line.replace("\\\n", " ") for line in _SHELL.findall(page.read_text())]


def commands_in_sentences(page: Path) -> list[str]:
    return [" ".join(line.split()) for line in _IN_A_SENTENCE.findall(page.read_text())]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = "|" + "---|" * len(head)
    lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    return "\n".join([lines[0], rule, *lines[1:]])


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def settings_tables() -> str:
    return "\n\n".join(
        f"## {section.removesuffix('.')}\n\n{_settings_table(rows)}"
        for section, rows in settings.documentation().items()
    )


def _settings_table(rows: Sequence[tuple[str, str, str]]) -> str:
    coded = [(_code(name), _code(default), about) for name, default, about in rows]
    return table(("variable", "default", "what it is"), coded)


def options_table() -> str:
    rows = [(_code(name), _code(given), about) for name, given, about in deployment.documentation()]
    return table(("option", "default", "what it is"), rows)


def routes_table() -> str:
    rows = [(_code(f"{method} {path}"), about) for method, path, about in surface.documentation()]
    return table(("route", "what it is"), rows)


GENERATED = (
    Generated(DOCS / "settings.md", "settings", settings_tables),
    Generated(DOCS / "aws.md", "options", options_table),
    Generated(DOCS / "aws.md", "differences", differences.table),
    Generated(DOCS / "developers.md", "routes", routes_table),
)


if __name__ == "__main__":
    for each in GENERATED:
        each.write()
