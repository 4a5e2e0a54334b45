"""The rehearsal leaves out of the app what docs/aws.md says, and nothing that is not there."""

import pytest

from tests.infra.conftest import Stacks
from tests.rehearsal.differences import LEFT_OUT


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_is_left_out_is_there_in_production(production: Stacks, name: str) -> None:
    stack, _, construct = name.partition("/")
    if construct:
        resources = production.templates[stack.removeprefix("Farthing").lower()]["Resources"]
        assert [id for id in resources if id.startswith(construct)]
    else:
        assert production.of_type(name)
