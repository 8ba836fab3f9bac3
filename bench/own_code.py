"""Whether what the benchmark starts runs the code that the benchmark itself imports.

Contestants are started without PYTHONPATH (`launch/contestants.py`), so what the interpreter has
installed is what they run: in the environment of another checkout that is the other one's code.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("holdfast", "holdfast_sidecar")
LIMIT_S = 60.0
ASKED = """
import sys
from importlib.util import find_spec
for name in sys.argv[1:]:
    found = find_spec(name)
    print(found.origin if found is not None else "")
"""


def foreign_code() -> str:
    """What is wrong, in a line; empty: nothing. What is not installed at all fails by itself."""
    bare = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    asked = [sys.executable, "-c", ASKED, *PACKAGES]
    answer = subprocess.run(
        asked, env=bare, cwd="/", capture_output=True, text=True, check=True, timeout=LIMIT_S
    )
    return differing(_own(), dict(zip(PACKAGES, answer.stdout.splitlines(), strict=True)))


def differing(own: dict[str, str], installed: dict[str, str]) -> str:
    """The first package that is installed from elsewhere, in a line. Values: paths, or empty."""
    for name, path in installed.items():
        if path and Path(path).resolve() != Path(own[name]).resolve():
            return f"{name} is installed from {path}, not from {own[name]}: jobs would run that one"
    return ""


def _own() -> dict[str, str]:
    specs = {name: find_spec(name) for name in PACKAGES}
    return {name: (spec.origin or "") if spec else "" for name, spec in specs.items()}
