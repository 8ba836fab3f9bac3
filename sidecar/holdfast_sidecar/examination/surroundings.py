"""The timeouts of torch, NCCL, Slurm and Kubernetes, where they can be read."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

from holdfast_sidecar.config.timeouts import Surroundings, parse_slurm, parse_surroundings

ASKING_S = 5.0
"""A controller that takes longer is in trouble."""


def read_surroundings(
    environ: Mapping[str, str], group_timeout_s: float | None, grace_s: float | None
) -> Surroundings:
    """What is around this process. Slurm is asked only from inside one of its jobs."""
    slurm = read_slurm() if environ.get("SLURM_JOB_ID") else ""
    return parse_surroundings(environ, parse_slurm(slurm), group_timeout_s, grace_s)


def read_slurm(command: str = "scontrol") -> str:
    """What `scontrol show config` prints; empty when it does not answer."""
    try:
        return subprocess.run(
            [command, "show", "config"],
            capture_output=True,
            text=True,
            timeout=ASKING_S,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
