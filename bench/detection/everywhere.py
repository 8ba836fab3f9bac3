"""Row `everywhere`: a rank of a real job is killed; when the last of its sidecars has heard."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.benchmark import NotRun, Sample, Task
from bench.checkpoint.training import Training, through
from bench.detection.names import EVERYWHERE, HOLDFAST

PROGRAM = Path(__file__).parent / "programs" / "dying_job.py"

NODES = ("a", "b", "c")
KILLS = 100
QUICK_KILLS = 5
START_LIMIT_S = 120.0
KILL_LIMIT_S = 30.0

TIRELESS = (
    "--set=policy.budget=1000000",
    "--set=policy.blames_limit=1000000",
    "--set=policy.stuck_limit=1000000",
)
"""Ranks die more often here than a job should put up with."""

HEARD = re.compile(
    r"^(?P<second>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(?P<ms>\d{3}) INFO \S+: heard: attempt"
    r" (?P<attempt>\d+) is ended: crash, ranks \[(?P<rank>\d+)\]",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Heard:
    """What a sidecar's log says of an attempt's end."""

    attempt: int
    rank: int
    at_unix_s: float


def tasks(quick: bool) -> list[Task]:
    """One job that goes through all deaths."""
    return [Task(EVERYWHERE, EVERYWHERE, partial(measure, QUICK_KILLS if quick else KILLS))]


def measure(kills: int) -> list[Sample]:
    """A sample per death."""
    with Training() as training:
        options = (*TIRELESS, f"--nnodes={len(NODES)}")
        for node in NODES:
            training.start(node, str(PROGRAM), kills, options=options, ranks=1)
        lines = training.wait_for(through, START_LIMIT_S + KILL_LIMIT_S * kills, f"{kills} deaths")
        logs = [log.read_text(errors="replace") for log in _logs(training)]
    if len(logs) != len(NODES):
        raise NotRun(f"{len(logs)} of {len(NODES)} sidecars left a log")
    heard = [list(parse_heard(log)) for log in logs]
    return [{"contestant": HOLDFAST, **sample} for sample in samples_of(lines, heard)]


def samples_of(
    lines: Sequence[dict[str, Any]], heard: Sequence[Sequence[Heard]]
) -> Iterator[Sample]:
    """Per death that some rank announced: when the last sidecar had heard, and of whom."""
    for line in lines:
        if "struck_unix_s" not in line:
            continue
        found = [next((h for h in log if h.attempt == line["attempt"]), None) for log in heard]
        ranks = {None if one is None else one.rank for one in found}
        sample: Sample = {"round": line["attempt"], "is_right": ranks == {line["rank"]}}
        times = [one.at_unix_s for one in found if one is not None]
        if len(times) == len(heard):
            sample["last_s"] = max(times) - line["struck_unix_s"]
            sample["first_s"] = min(times) - line["struck_unix_s"]
        yield sample


def parse_heard(log: str) -> Iterator[Heard]:
    """Ends by a crash that this log tells of. Its times are cut to milliseconds: one is added."""
    for found in HEARD.finditer(log):
        second = time.mktime(time.strptime(found["second"], "%Y-%m-%d %H:%M:%S"))
        at_unix_s = second + (int(found["ms"]) + 1) / 1000
        yield Heard(int(found["attempt"]), int(found["rank"]), at_unix_s)


def _logs(training: Training) -> list[Path]:
    state = training.directory / "state" / "holdfast" / training.run
    return sorted(state.glob("*/sidecar.log"))
