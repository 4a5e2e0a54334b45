"""`python -m infra.local`, which also works where PYTHONPATH does not name the layer's folder."""

import sys
from pathlib import Path

_LAYER = str(Path(__file__).parents[2] / "layers" / "farthing" / "python")
if _LAYER not in sys.path:
    sys.path.append(_LAYER)

from infra.local.cli import main  # noqa: E402

sys.exit(main())
