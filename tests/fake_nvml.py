"""The fake NVML for tests: compiled once, loaded by the real nvidia-ml-py."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import pytest
from testing.fake_nvml.driver import CompilerMissingError, build


def compiled(directory: Path, without: Iterable[str] = ()) -> Path:
    """The library; without a compiler the test is skipped on a laptop and fails in CI."""
    try:
        return build(directory, without)
    except CompilerMissingError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))


def fresh_pynvml(library: Path) -> ModuleType:
    """nvidia-ml-py as a process has it that just started, with this library loaded.

    It keeps the library and every function it looked up in module variables. It takes its place in
    sys.modules, until the fixture fake_nvml ends.
    """
    found = importlib.util.find_spec("pynvml")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules["pynvml"] = module
    found.loader.exec_module(module)
    vars(module)["nvmlLib"] = ctypes.CDLL(str(library))
    return module
