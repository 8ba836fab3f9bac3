"""The hot path makes no system call, whichever way the loop is written."""

from __future__ import annotations

import shutil

import pytest
from bench import hot_path

pytestmark = [pytest.mark.torch, pytest.mark.strace]


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_a_step_with_all_hooks_makes_no_system_call() -> None:
    assert hot_path.count_system_calls(steps=500) == 0
