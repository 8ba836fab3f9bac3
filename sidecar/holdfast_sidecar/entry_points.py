"""Where torch finds us: `torchrun --rdzv-backend=holdfast`, entry-point group torchrun.handlers.

torch loads this while its own elastic package is half imported, so nothing here may import that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def rendezvous_handler() -> Callable[[Any], Any]:
    """torch calls this without arguments and registers what it answers."""
    return _create


def _create(parameters: Any) -> Any:
    from holdfast_sidecar.launcher.torchrun_handler import create

    return create(parameters)
