"""The environment that children of this process inherit, for a while."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping


@contextlib.contextmanager
def inherited(environment: Mapping[str, str]) -> Iterator[None]:
    """Within this, the process's environment is this one."""
    before = dict(os.environ)
    try:
        _replace(environment)
        yield
    finally:
        _replace(before)


def _replace(environment: Mapping[str, str]) -> None:
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)
