"""A rank of --run-path: torch calls this function in a process that torch itself started."""

from __future__ import annotations

import multiprocessing
import os
from typing import Any

from torch.distributed.run import run_script_path

from holdfast import attachment
from holdfast_sidecar.linux.process import die_with


def run_path(script: str, *arguments: str) -> Any:
    """Run the script in this interpreter, attached and bound to the launcher's life."""
    launcher = multiprocessing.parent_process()
    die_with(os.getppid())
    # To get here took seconds of importing: a launcher that died meanwhile left us to another.
    if launcher is not None and not launcher.is_alive():
        os._exit(1)
    attachment.arm()
    return run_script_path(script, *arguments)
