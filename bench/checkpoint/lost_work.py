"""How many completed steps have to be done again after a rank, or a node, was lost."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Sequence
from typing import Any

from bench.benchmark import NotRun, Sample
from bench.checkpoint import names
from bench.checkpoint.training import LOOK_S, TIRELESS, Training

RANKS = 2
EVERY_STEP = ("--set=snapshot.every_steps=1", *TIRELESS)
KILL_LIMIT_S = 30.0
STEP_S = 0.02
"""Of the training that loses a node: copying its state to another one takes about as long."""
STEPS_BEFORE = 50
NODE_LIMIT_S = 180.0

Line = dict[str, Any]


def lose_ranks(kills: int) -> list[Sample]:
    """One training in which ranks die by SIGKILL at moments drawn by chance; a sample per death."""
    with Training() as training:
        training.start("a", "lost.py", kills, 0.005, options=EVERY_STEP, ranks=RANKS)
        lines = training.wait_for(
            lambda seen: sum("done" in line for line in seen) == RANKS,
            KILL_LIMIT_S * (kills + 2),
            f"{kills} deaths",
        )
    return [
        {"contestant": names.HOLDFAST, "round": attempt, **lost(lines, attempt)}
        for attempt in range(kills)
    ]


def lose_node(peer: str, number: int) -> list[Sample]:
    """Two nodes and a spare; the second one is killed whole."""
    options = (*EVERY_STEP, f"--set=snapshot.peer={peer}", "--nnodes=2", "--spares=1")
    with Training() as training:
        for node in ("a", "b", "c"):
            training.start(node, "lost.py", 0, STEP_S, options=options, ranks=1)
        training.wait_for(
            lambda seen: completed(seen, 0) >= STEPS_BEFORE + 10 * number,
            NODE_LIMIT_S,
            "steps before the node is lost",
        )
        copied = await_copied_step(training)
        training.lose(training.nodes_in_use()[-1])
        lines = training.wait_for(
            lambda seen: len(resumed(seen, 1)) == RANKS, NODE_LIMIT_S, "the spare's first step"
        )
    sample = {"contestant": names.HOLDFAST, "peer": peer, "round": number}
    return [{**sample, "copied_step": copied, **lost(lines, 0)}]


def completed(lines: Sequence[Line], attempt: int) -> int:
    """Steps that every rank had completed in this attempt, as far as they said."""
    newest: dict[int, int] = {}
    for line in lines:
        if line["attempt"] == attempt and "step" in line:
            newest[line["rank"]] = line["step"]
    return min(newest.values()) if len(newest) == RANKS else -1


def resumed(lines: Sequence[Line], attempt: int) -> list[int]:
    """Where the ranks of this attempt began."""
    return [line["resumed"] for line in lines if line["attempt"] == attempt and "resumed" in line]


def lost(lines: Sequence[Line], attempt: int) -> Sample:
    """What the end of this attempt cost."""
    began = set(resumed(lines, attempt + 1))
    if len(began) != 1:
        raise NotRun(f"attempt {attempt + 1} did not begin at one step: {sorted(began)}")
    done, again = completed(lines, attempt), began.pop()
    return {"completed": done, "resumed": again, "lost_steps": max(0, done - again)}


def await_copied_step(training: Training) -> int:
    """The newest step that is on another node too, as exported."""
    end_s = time.monotonic() + NODE_LIMIT_S
    while time.monotonic() < end_s:
        found = [parse_copied_step(page) for page in _metrics_pages(training)]
        steps = [step for step in found if step is not None]
        if steps:
            return max(steps)
        time.sleep(LOOK_S)
    raise NotRun("no copy on another node was ever exported")


def parse_copied_step(page: str) -> int | None:
    """`holdfast_peer_copied_step` of a metrics page."""
    found = re.search(r"^holdfast_peer_copied_step(?:\{[^}]*\})? (\S+)$", page, re.MULTILINE)
    return None if found is None else int(float(found[1]))


def _metrics_pages(training: Training) -> list[str]:
    pages = []
    for address in training.metrics_addresses():
        try:
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=2) as page:
                pages.append(page.read().decode())
        except OSError:
            continue
    return pages
