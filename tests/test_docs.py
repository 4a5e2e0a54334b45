"""The docs say what is so: their tables are made from the code, and their pages are all there."""

import re

import pytest

from tests.documents import DOCS, GENERATED, ROOT, Generated

README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
LINKS = [
    (page, link)
    for page in PAGES
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    if "://" not in link
]


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
