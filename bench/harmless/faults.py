"""Row `faults`: what is real is detected and recovered as fast as before.

Tasks and figures are those of `bench detection` and `bench launch`, fewer of each. A sample keeps
the row that those know it by under `of`. The peers of launch's ratios are those of its last full
run, if that was on such a machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench.benchmark import NotRun, Sample, Task
from bench.detection import death, everywhere, hangs, node_loss
from bench.detection.death_figures import death_figures, everywhere_figures
from bench.detection.hang_figures import hang_figures
from bench.detection.hang_names import HANGS
from bench.detection.names import DEATH, EVERYWHERE
from bench.detection.presence_figures import node_loss_figures
from bench.detection.presence_names import FROZEN_SIDECAR, NODE, NODE_LOSS, SIDECAR
from bench.figures import NOT_RUN, Figure
from bench.launch.contestants import HOLDFAST
from bench.launch.fault_figures import kill_figures, node_figures, stop_figures
from bench.launch.faults import NODE_REPLACED, NODE_SHRUNK, SIGKILL, SIGSTOP, Fault
from bench.launch.names import ADAMW, SGD
from bench.launch.recovery import Case
from bench.launch.recovery import measure as recover
from bench.launch.rows import HOLDFAST_LIMIT_S
from bench.machine import read_machine
from bench.results import FULL, read_content

ROW = "faults"
RESULTS = Path(__file__).parents[1] / "results"

KINDS = ("stopped", "dead-loader-worker", "deadlock")
EACH = 3
LOSSES = {NODE: 15, SIDECAR: 8, FROZEN_SIDECAR: 8}
DEATHS = 15
DEATHS_EVERYWHERE = 15
RECOVERIES = ((SIGKILL, ADAMW, 3), (SIGKILL, SGD, 3), (SIGSTOP, ADAMW, 3))
NODES_LOST = ((NODE_REPLACED, ADAMW, 3), (NODE_SHRUNK, ADAMW, 3))


def tasks() -> list[Task]:
    """About a quarter of an hour."""
    return [
        *(_task(HANGS, kind, partial(hangs.measure, (kind,) * EACH)) for kind in KINDS),
        *(
            _task(NODE_LOSS, what, partial(node_loss.measure, what, count))
            for what, count in LOSSES.items()
        ),
        _task(DEATH, "", partial(death.measure, DEATHS)),
        _task(EVERYWHERE, "", partial(everywhere.measure, DEATHS_EVERYWHERE)),
        *(
            _task(fault.row, f"{optimizer}/{number}", partial(_recover, fault, optimizer, number))
            for fault, optimizer, count in (*RECOVERIES, *NODES_LOST)
            for number in range(count)
        ),
        Task(ROW, f"{ROW}/peers", peers),
    ]


def _task(row: str, what: str, measure: Callable[[], list[Sample]]) -> Task:
    key = "/".join(filter(None, (ROW, row, what)))
    return Task(ROW, key, partial(_as_of, row, measure))


def _as_of(row: str, measure: Callable[[], list[Sample]]) -> list[Sample]:
    return [{**sample, "of": row} for sample in measure()]


def _recover(fault: Fault, optimizer: str, number: int) -> list[Sample]:
    return [recover(Case(fault, HOLDFAST, optimizer, number, HOLDFAST_LIMIT_S))]


def peers() -> list[Sample]:
    """What other launchers took, by the last full run of `bench launch`."""
    content = read_content(RESULTS / "launch.json")
    if content.get("machine") != read_machine():
        raise NotRun("bench/results/launch.json is of another machine")
    rows = {fault.row for fault, _, _ in (*RECOVERIES, *NODES_LOST)}
    found = [
        sample
        for sample in content["raw"]
        if sample["mode"] == FULL
        and sample["row"] in rows
        and sample.get("contestant") != HOLDFAST.name
    ]
    return [{**_measured(sample), "of": sample["row"]} for sample in found]


def _measured(sample: Sample) -> Sample:
    """Less where it comes from, but for the run and the commit."""
    return {name: value for name, value in sample.items() if name not in ("row", "key", "mode")}


def figures(samples: Sequence[Sample]) -> list[Figure]:
    """Their own figures that have goals, by their own goals. Pure."""
    real = [{**sample, "row": sample["of"]} for sample in samples if "of" in sample]
    found = [
        *hang_figures(real),
        *node_loss_figures(real),
        *death_figures(real),
        *everywhere_figures(real),
        *kill_figures(real),
        *stop_figures(real),
        *node_figures(real, NODE_REPLACED.row, 0.3),
        *node_figures(real, NODE_SHRUNK.row, 0.15),
    ]
    with_goals = [figure for figure in found if figure.goal is not None]
    if not real:
        with_goals = [figure for figure in with_goals if figure.met == NOT_RUN]
    return [replace(figure, name=f"{ROW}: {figure.name}") for figure in with_goals]
