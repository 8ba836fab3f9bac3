"""Python packages that a laptop may lack, and a machine of CI may not."""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest


def package(name: str) -> Any:
    """The module; without it the tests are skipped on a laptop and fail in CI."""
    if os.environ.get("CI") == "true":
        return importlib.import_module(name)
    return pytest.importorskip(name, reason=f"{name} is not installed")
