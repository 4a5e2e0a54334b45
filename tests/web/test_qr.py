"""QR codes of the page, module by module against another implementation."""

import json
import shutil
import subprocess

import pytest
import qrcode
from qrcode.util import MODE_8BIT_BYTE, QRData

from tests.e2e.relay_process import ROOT

TEXTS = [
    "$h/purse/x",
    "$relay.example/purse/npub180cvv07tjdrrgpa0j7j7tmnyl2yr6yr7l8j4s3evf6u64th6gkwsyjh6w6",
    "$" + "a" * 120,
    "$" + "b" * 150,
    "€" * 60,
    "$" + "c" * 200,
]
_SCRIPT = """
import { qrModules } from './infra/web/qr.js'
const texts = JSON.parse(process.argv[1])
console.log(JSON.stringify(texts.map((text) => [0, 1, 2, 3, 4, 5, 6, 7].map(
  (mask) => qrModules(text, mask).map((row) => row.map(Number))))))
"""


@pytest.fixture(scope="module")
def drawn() -> list[list[list[list[int]]]]:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no Node")
    done = subprocess.run(
        [node, "--input-type=module", "-e", _SCRIPT, json.dumps(TEXTS)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: list[list[list[list[int]]]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("index", range(len(TEXTS)))
def test_every_module_is_where_the_standard_has_it(
    drawn: list[list[list[list[int]]]], index: int
) -> None:
    for mask, ours in enumerate(drawn[index]):
        code = qrcode.QRCode(
            error_correction=qrcode.constants.ERROR_CORRECT_M, mask_pattern=mask, border=0
        )
        code.add_data(QRData(TEXTS[index].encode(), mode=MODE_8BIT_BYTE))
        code.make()
        assert ours == [[int(bool(module)) for module in row] for row in code.get_matrix()]
