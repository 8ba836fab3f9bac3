"""When this launch's time is over: by its own setting, else as Slurm says. Asked at the start."""

from __future__ import annotations

import logging
import re
import subprocess
from collections.abc import Callable, Mapping

from holdfast_sidecar.settings import PolicySettings

logger = logging.getLogger(__name__)

_LEFT = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")
"""squeue's %L: days-hours:minutes:seconds, as far as needed; else a word like UNLIMITED."""

ASKING_S = 5.0
"""A controller that takes longer is in trouble, and a launch does not wait for it."""


def read_end(
    policy: PolicySettings,
    environ: Mapping[str, str],
    now_unix_s: float,
    ask: Callable[[str], str] | None = None,
) -> float:
    """Wall-clock time at which this launch will be ended; 0: nobody has said."""
    if policy.time_limit_s:
        return now_unix_s + policy.time_limit_s
    told = environ.get("SLURM_JOB_END_TIME", "")
    if told.isdecimal():
        return float(told)
    job = environ.get("SLURM_JOB_ID", "")
    if not job.isdecimal():
        return 0.0
    # Slurm before 22.05 puts the end into no variable.
    left_s = parse_left((ask or read_left)(job))
    return 0.0 if left_s is None else now_unix_s + left_s


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
