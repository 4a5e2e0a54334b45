"""The docs say what is so: their tables are made from the code, and their pages are all there."""

import re
import shlex

import pytest

from infra.local.cli import COMMANDS, parser
from tests.documents import (
    DOCS,
    GENERATED,
    PAGES,
    ROOT,
    Generated,
    commands_in_sentences,
    typed_commands,
)

README = (ROOT / "README.md").read_text()
LINKS = [
    (page, link)
    for page in PAGES
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    if "://" not in link
]
TEXT = "\n".join(page.read_text() for page in PAGES)
TYPED = [line for page in PAGES for line in typed_commands(page)]
IN_SENTENCES = sorted({line for page in PAGES for line in commands_in_sentences(page)})
KEY = "79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798"
STANDS_FOR = {
    **dict.fromkeys(("npub1...", "npub1…", "NPUB", "KEY", "note1...", "ID"), KEY),
    "AMOUNT": "1000",
    "URL": "wss://relay.example",
}
TARGETS = sorted(set(re.findall(r"(?:^|`|\$ )make ([a-z][a-z-]*)", TEXT, re.MULTILINE)))


@pytest.mark.parametrize("generated", GENERATED, ids=lambda each: each.mark)
def test_every_table_is_as_the_code_says(generated: Generated) -> None:
    """`make docs` writes them anew."""
    assert generated.stands() == generated.make()


@pytest.mark.parametrize(("page", "link"), LINKS, ids=lambda each: str(getattr(each, "name", each)))
def test_every_link_leads_somewhere(page: object, link: str) -> None:
    assert (page.parent / link).exists()  # type: ignore[attr-defined]


def test_the_readme_stays_short() -> None:
    assert len(README.encode()) <= 8 * 1024


def test_the_cdk_that_is_named_is_one_that_takes_the_library() -> None:
    """3.x refuses it, and what comes without a version is 3.x."""
    named = re.findall(r"aws-cdk(@[\d.]+)?(?= )", (DOCS / "aws.md").read_text())
    assert named
    assert set(named) == {"@2.1147.0"}


def test_there_are_commands_to_check() -> None:
    assert len(TYPED) > 35 and len(IN_SENTENCES) > 20 and {"run", "test"} <= set(TARGETS)


def test_the_readme_lists_every_page() -> None:
    assert not [page.name for page in DOCS.glob("*.md") if f"](docs/{page.name})" not in README]


@pytest.mark.parametrize("typed", TYPED)
def test_every_command_is_one_that_farthing_takes(typed: str) -> None:
    """That they do what the pages say is tested in tests/e2e/test_documented_commands.py."""
    words = [STANDS_FOR.get(word, word) for word in shlex.split(typed, comments=True)]

    parser(words[0]).parse_args(words)  # ends with SystemExit where it takes no such arguments


@pytest.mark.parametrize("command", IN_SENTENCES)
def test_every_command_in_a_sentence_is_one_that_farthing_takes(command: str) -> None:
    """A sentence may leave out arguments. Those that it names must exist."""
    words = [STANDS_FOR.get(word, word) for word in shlex.split(command)]
    names = [word for word in words if not word.startswith("--")]
    if not names or names[0] == "COMMAND":
        return
    assert names[0] in {each.name for each in COMMANDS}
    if len(words) > 1:
        parser(names[0]).parse_args(words)


@pytest.mark.parametrize("target", TARGETS)
def test_every_make_target_exists(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
