"""CloudFormation's own rules (cfn-lint). `make lint` holds the production templates to them, and
these tests the templates of other options."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.infra.conftest import Stacks


@pytest.mark.parametrize("variant", ["named", "small"])
def test_no_template_has_an_error(
    assemblies: Path, named: Stacks, small: Stacks, variant: str
) -> None:
    templates = sorted(str(path) for path in (assemblies / variant).glob("*.template.json"))
    assert templates
    done = subprocess.run(
        [str(Path(sys.executable).with_name("cfn-lint")), "--non-zero-exit-code", "error",
         "--ignore-checks", "W", "--", *templates],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
