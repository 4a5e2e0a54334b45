"""The README lists what the rehearsal cannot show, as the code does."""

from tests.rehearsal.differences import table
from tests.rehearsal.places import ROOT


def test_the_readme_lists_every_difference() -> None:
    readme = (ROOT / "README.md").read_text()
    listed = readme.partition("<!-- differences -->")[2].partition("<!-- /differences -->")[0]
    assert listed.strip() == table()
