"""What draws on a terminal is loaded by `holdfast top` alone."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.extras import package

LOADED = "loaded = {n.split('.')[0] for n in sys.modules} & {'textual', 'rich'}\n"


@pytest.mark.parametrize(
    "imports",
    [
        "import holdfast",
        "import holdfast_sidecar.wiring, holdfast_sidecar.cli.sidecar",
        "import holdfast_sidecar.cli.top",
    ],
)
def test_neither_hooks_nor_sidecar_nor_one_picture_loads_it(imports: str) -> None:
    code = f"import sys\n{imports}\n{LOADED}sys.exit(str(loaded) if loaded else 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_this_test_sees_it_loaded() -> None:
    package("textual")
    code = f"import sys\nimport holdfast_sidecar.cli.tui.screen\n{LOADED}sys.exit(not loaded)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
