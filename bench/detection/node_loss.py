"""How soon it is declared that a node, or a node's sidecar, is gone."""

from __future__ import annotations

import random
import signal
import time
from functools import partial

from bench.benchmark import Sample, Task
from bench.detection.company import Company
from bench.detection.presence_names import FROZEN_SIDECAR, NODE, NODE_LOSS, SIDECAR
from holdfast_sidecar.records.findings import Kind

MEMBERS = 3
SPARES = 2
LIMIT_S = 45.0
"""More than the patience with a node for which no witness could speak."""
COUNTS = {NODE: 100, SIDECAR: 60, FROZEN_SIDECAR: 40}
QUICK_COUNTS = {NODE: 5, SIDECAR: 3, FROZEN_SIDECAR: 3}


def tasks(quick: bool) -> list[Task]:
    """Nodes, sidecars that are killed, sidecars that stand still."""
    counts = QUICK_COUNTS if quick else COUNTS
    return [
        Task(NODE_LOSS, f"{NODE_LOSS}/{what}", partial(measure, what, count))
        for what, count in counts.items()
    ]


def measure(what: str, count: int) -> list[Sample]:
    """One job that goes on through so many losses; a sample for each."""
    chance = random.Random(count)
    with Company(MEMBERS) as company:
        for index in range(MEMBERS + SPARES):
            company.start(f"n{index}")
        samples = []
        for _ in range(count):
            members = [member.node for member in company.wait_running().members]
            # Where between two heartbeats it strikes is drawn by chance, like who it is.
            time.sleep(0.5 + chance.random())
            node = chance.choice(members)
            led = company.leader() == node
            struck_s = time.monotonic()
            declared_s = strike(company, what, node)
            samples.append({"what": what, "led": led, "declared_s": declared_s - struck_s})
            if what == NODE:
                company.start(node)
        return samples


def strike(company: Company, what: str, node: str) -> float:
    """Lose it; when that stood in a report or in the plan of which everybody heard."""
    if what == NODE:
        company.signal_node(node, signal.SIGSTOP)  # or the first to die would be told of
        company.signal_node(node, signal.SIGKILL)
        company.launchers[node].wait()
        return company.wait_until(
            lambda: is_told(company, Kind.NODE_LOST, node), LIMIT_S, f"the loss of {node} is told"
        )
    number = signal.SIGKILL if what == SIDECAR else signal.SIGSTOP
    pid = company.signal_sidecar(node, number)
    declared_s = company.wait_until(
        lambda: is_told(company, Kind.SIDECAR_LOST, node), LIMIT_S, f"{node} is told unwatched"
    )
    company.signal_sidecar(node, signal.SIGKILL)
    company.wait_until(
        lambda: company.sidecar(node) not in (0, pid), LIMIT_S, f"{node} has another sidecar"
    )
    return declared_s


def is_told(company: Company, kind: Kind, node: str) -> bool:
    """Whether some report names it, or the plan was ended for it, or the next one made for it: with
    a spare at hand the other two stand for a few milliseconds."""
    view = company.view()
    if any((f.kind, f.node) == (kind, node) for f in company.findings(view)):
        return True
    plan = company.plan()
    if kind is not Kind.NODE_LOST or plan is None:
        return False
    is_ended = (plan.cause, plan.culprit_node) == (kind.value, node)
    return is_ended or plan.message.startswith(f"{kind.value} on node {node}:")
