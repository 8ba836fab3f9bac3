"""Which of the user's commands are run for nodes that are kept outside or come back, by whom, once.

The plan says who runs what, so that a new leader neither runs it again nor forgets it; whoever runs
it takes the command itself from its own settings. Pure.
"""

from __future__ import annotations

import dataclasses

from holdfast_sidecar.config.settings import NodesSettings
from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.decisions.outcome import Circumstances
from holdfast_sidecar.records.plan import DONE, HookRun, Plan, Quarantine

QUARANTINE, RETURN = "quarantine", "return"
"""Events."""


def with_hooks(plan: Plan, cluster: Cluster, circumstances: Circumstances) -> Plan:
    """The plan with what is to be run for who went outside and came back since, and what became of
    what was run."""
    settings, leader = circumstances.settings.nodes, circumstances.leader
    if not (plan.hooks or settings.on_quarantine or settings.on_return):
        return plan
    outside = {one.part: one for one in plan.outside}
    # Who goes outside again while its return is still being told is told of after that.
    known = {run.part for run in plan.hooks}
    runs = [
        changed
        for run in plan.hooks
        if (changed := _followed(run, run.part in outside, cluster, settings, leader)) is not None
    ]
    new = [_begun(one, settings, leader) for part, one in outside.items() if part not in known]
    hooks = [*runs, *new]
    return plan if hooks == plan.hooks else dataclasses.replace(plan, hooks=hooks)


def _begun(one: Quarantine, settings: NodesSettings, leader: str) -> HookRun:
    return HookRun(
        one.part,
        one.node,
        one.since_unix_s,
        QUARANTINE,
        leader if settings.on_quarantine else "",
        reason="; ".join(one.evidence[:1]),
        gpu=one.gpu,
        remedy=one.remedy,
    )


def _followed(
    run: HookRun, is_outside: bool, cluster: Cluster, settings: NodesSettings, leader: str
) -> HookRun | None:
    """The run as it is now; None: nothing is left to do or to know of it."""
    run = _with_outcome(run, cluster, leader)
    is_over = not run.by or bool(run.outcome)
    if not is_over or (run.event == QUARANTINE and is_outside):
        return run
    if run.event == RETURN:
        # Whoever was to know that it is back does not: that is told until it goes again.
        return run if run.outcome not in ("", DONE) and not is_outside else None
    if not settings.on_return:
        return None
    return dataclasses.replace(run, event=RETURN, by=leader, outcome="")


def _with_outcome(run: HookRun, cluster: Cluster, leader: str) -> HookRun:
    """With what became of it; where its sidecar is gone nobody knows, and it is run again."""
    if not run.by or run.outcome:
        return run
    runner = next((node for node in cluster.nodes.values() if node.candidate == run.by), None)
    if runner is not None and (outcome := runner.hooks.get(run.key)):
        return dataclasses.replace(run, outcome=outcome)
    is_gone = runner is None or runner.node in cluster.unattended
    return dataclasses.replace(run, by=leader) if is_gone and run.by != leader else run
