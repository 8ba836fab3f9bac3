"""Asking a sidecar over HTTP, and waiting for what it says."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable

PATIENCE_S = 60.0
"""For a machine on which everything else runs as well."""


def ask(address: str, path: str = "/metrics") -> str:
    """What is answered; empty while nothing is, or it is not well."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=5) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def await_that(is_so: Callable[[], bool], what: str, story: Callable[[], str]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end_s, f"never: {what}\n{story()}"
        time.sleep(0.05)
