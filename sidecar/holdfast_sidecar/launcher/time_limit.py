"""When this launch's time is over: by its own setting, else as Slurm says. Asked at the start."""

from __future__ import annotations

import logging
import re
import subprocess
from collections.abc import Callable, Mapping

from holdfast_sidecar.config.settings import PolicySettings

logger = logging.getLogger(__name__)

_LEFT = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")
"""squeue's %L: days-hours:minutes:seconds, as far as needed; else a word like UNLIMITED."""

NO_LIMIT = "UNLIMITED"

LEAST_S = 0.001
"""Of a job whose time is over: 0 would say that it has no limit."""

CLOCK_OFF_S = 60.0
"""More than clocks of a cluster differ by."""

ASKING_S = 5.0
"""A controller that takes longer is in trouble, and a launch does not wait for it."""


def read_left_s(
    policy: PolicySettings,
    environ: Mapping[str, str],
    now_unix_s: float,
    ask: Callable[[str], str] | None = None,
) -> float:
    """Seconds until this launch will be ended; 0: nobody has said.

    Slurm itself says how much is left: an end by the clock is wrong by as much as this node's clock
    is. The environment counts only where Slurm does not answer.
    """
    if policy.time_limit_s:
        return policy.time_limit_s
    job = environ.get("SLURM_JOB_ID", "")
    answer = (ask or read_left)(job) if job.isdecimal() else ""
    if NO_LIMIT in answer.split():
        return 0.0
    left = [left_s for line in answer.split() if (left_s := parse_left(line)) is not None]
    if left:  # a heterogeneous job has a line for each of its components
        return max(LEAST_S, min(left))
    return _left_by_the_clock(environ, now_unix_s)


def _left_by_the_clock(environ: Mapping[str, str], now_unix_s: float) -> float:
    """What Slurm since 22.05 leaves in the environment; 0: nothing, or this node's clock is off."""
    begins, ends = (environ.get(f"SLURM_JOB_{which}_TIME", "") for which in ("START", "END"))
    told_s = float(ends) - now_unix_s if ends.isdecimal() else 0.0
    # Both are by the controller's clock: a node whose own is far off says that it is after the end,
    # or before the start.
    is_off = begins.isdecimal() and now_unix_s < float(begins) - CLOCK_OFF_S
    return 0.0 if is_off else max(0.0, told_s)


def started_again(environ: Mapping[str, str]) -> int:
    """How often Slurm has started this job again; 0 where nobody counts."""
    told = environ.get("SLURM_RESTART_COUNT", "")
    return int(told) if told.isdecimal() else 0


def parse_left(text: str) -> float | None:
    """Seconds of `1-02:03:04`, `2:03:04` or `3:04`; None for anything else."""
    match = _LEFT.fullmatch(text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def read_left(job: str) -> str:
    """What squeue says of the time that a job has left; empty when it says nothing."""
    try:
        answer = subprocess.run(
            ["squeue", "--noheader", f"--job={job}", "--format=%L"],
            capture_output=True,
            text=True,
            timeout=ASKING_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        logger.info("squeue does not say when job %s ends: %s", job, error)
        return ""
    return answer.stdout
