"""The rehearsal leaves out of the app what the README says, and nothing that is not there."""

import pytest

from tests.infra.conftest import ROOT, Stacks
from tests.rehearsal.differences import LEFT_OUT, table


def test_the_readme_lists_every_difference() -> None:
    readme = (ROOT / "README.md").read_text()
    listed = readme.partition("<!-- differences -->")[2].partition("<!-- /differences -->")[0]
    assert listed.strip() == table()


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_is_left_out_is_there_in_production(production: Stacks, name: str) -> None:
    stack, _, construct = name.partition("/")
    if construct:
        resources = production.templates[stack.removeprefix("Farthing").lower()]["Resources"]
        assert [id for id in resources if id.startswith(construct)]
    else:
        assert production.of_type(name)
