"""The twelve kinds of hangs, from the one place where they are written."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

PROGRAMS = Path(__file__).resolve().parents[2] / "tests" / "end_to_end" / "hangs" / "programs"

RANKS = 3
CULPRIT = 1


def _load() -> ModuleType:
    """The programs are scripts, not a package: whoever runs them has torch and nothing else."""
    spec = importlib.util.spec_from_file_location("hang_kinds_of_tests", PROGRAMS / "kinds.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


KINDS: dict[str, bool] = {kind.name: kind.is_provable for kind in _load().KINDS}
"""Name -> whether positive evidence is possible, so that the hang can be ended within seconds."""
