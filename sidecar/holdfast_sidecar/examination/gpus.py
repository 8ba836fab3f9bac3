"""What NVML lets us see of the GPUs, and why not the rest. A wedged driver does not hold us up."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast_sidecar.examination.check import FAIL, NOTE, OK, WARN, Check

CHILD = (sys.executable, "-m", "holdfast_sidecar.examination.nvml_child")

DEADLINE_S = 10.0
"""A driver that nothing keeps loaded takes 1 to 3 s with eight GPUs to come up (persistence mode
spares it that); one that needs longer has another trouble."""

ACTIVITY, EVENTS, EVERYTHING = "activity (GPM)", "XID events", "everything"


@dataclass(frozen=True)
class Answer:
    """What the child said; `trouble` why it said nothing."""

    told: Mapping[str, Any]
    trouble: str = ""


def check_gpus(child: Sequence[str] = CHILD, deadline_s: float = DEADLINE_S) -> list[Check]:
    """Look at the GPUs of this machine."""
    return judge_answer(ask(child, deadline_s))


def ask(child: Sequence[str], deadline_s: float) -> Answer:
    """Run the child. One that is stuck in the kernel can't be ended: it is left behind."""
    asked = subprocess.Popen(child, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        said, complaint = asked.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired:
        asked.kill()
        return Answer({}, f"does not answer within {deadline_s:g} s")
    try:
        told = json.loads(said)
    except ValueError:
        last = (complaint.strip().splitlines() or [f"exit code {asked.returncode}"])[-1]
        return Answer({}, f"the process that asks ended: {last}")
    return Answer(told if isinstance(told, dict) else {}, "")


def judge_answer(answer: Answer) -> list[Check]:
    """One check of the driver, and one for each thing that GPUs may refuse."""
    if answer.trouble:
        line = f"{answer.trouble}: the driver is wedged or broken; see `dmesg`, reset or reboot"
        return [Check("NVML", FAIL, line)]
    error = answer.told.get("error")
    if error is not None and answer.told.get("is_absent"):
        return [Check("NVML", NOTE, f"{error}: no GPU of this machine is watched")]
    if error is not None:
        return [Check("NVML", FAIL, f"{error}: no GPU can be watched, and likely none be used")]
    gpus = [refused for refused in answer.told.get("gpus", []) if isinstance(refused, dict)]
    versions = f"driver {answer.told.get('driver')}, NVML {answer.told.get('library')}"
    found = Check("NVML", OK if gpus else WARN, f"{versions}, {_count(len(gpus), 'GPU')}")
    if not gpus:
        return [found]
    return [found, *_judge_lost(gpus), judge_signals(gpus), judge_gpm(gpus), judge_events(gpus)]


def judge_signals(gpus: Sequence[Mapping[str, str]]) -> Check:
    """Numbers that some GPU does not tell."""
    reasons: dict[str, list[str]] = {}
    for refused in gpus:
        for what, why in refused.items():
            if what not in (ACTIVITY, EVENTS, EVERYTHING) and what not in reasons.setdefault(
                why, []
            ):
                reasons[why].append(what)
    told = "; ".join(f"{', '.join(what)}: {why}" for why, what in reasons.items())
    if not told:
        return Check("GPU signals", OK, "all that is asked for is told")
    return Check("GPU signals", NOTE, f"not told, and left out of metrics: {told}")


def judge_gpm(gpus: Sequence[Mapping[str, str]]) -> Check:
    """Whether a GPU that is said to be busy does anything."""
    why = _first(gpus, ACTIVITY)
    if not why:
        return Check("GPM", OK, "activity of SMs, tensor cores and memory is seen")
    mend = (
        "; `--cap-add SYS_ADMIN`, or NVreg_RestrictProfilingToAdminUsers=0 for the driver"
        if "ermission" in why
        else "; it needs Hopper or later, and no MIG"
    )
    line = f"{why}: a GPU that spins in a collective looks as busy as one that computes{mend}"
    return Check("GPM", NOTE, line)


def judge_events(gpus: Sequence[Mapping[str, str]]) -> Check:
    """Whether the driver itself tells of faults."""
    why = _first(gpus, EVENTS)
    if not why:
        return Check("XID events", OK, "the driver tells of faults at once")
    return Check("XID events", NOTE, f"{why}: faults are seen only in the kernel's log, if there")


def _judge_lost(gpus: Sequence[Mapping[str, str]]) -> list[Check]:
    whys = [(index, refused.get(EVERYTHING)) for index, refused in enumerate(gpus)]
    return [
        Check("NVML", FAIL, f"GPU {index} can't be opened: {why}") for index, why in whys if why
    ]


def _first(gpus: Sequence[Mapping[str, str]], what: str) -> str:
    """The first reason that a GPU gives; empty: all do it."""
    return next((refused[what] for refused in gpus if what in refused), "")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
