"""A rank of --run-path: torch calls this function in a process that torch itself started."""

from __future__ import annotations

import os
from typing import Any

from torch.distributed.run import run_script_path

from holdfast import attachment
from holdfast_sidecar.server.parent_death import die_with


def run_path(script: str, *arguments: str) -> Any:
    """Run the script in this interpreter, attached and bound to the launcher's life."""
    die_with(os.getppid())
    attachment.arm()
    return run_script_path(script, *arguments)
