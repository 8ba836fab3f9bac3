"""What the leader writes, given what it reads: one step of reconciliation at a time.

`decide` looks at the cluster and answers with the writes that bring the plan closer to what should
be. It keeps no truth of its own: a new leader that reads the same cluster goes on where the old
one stopped. Files and clocks are asked through `Circumstances`.
"""

from __future__ import annotations

import dataclasses

from holdfast_sidecar.policy import requeue
from holdfast_sidecar.policy.attached import is_attached, observe
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.policy.outcome import (
    Decision,
    DecisionContext,
    Write,
    amend,
    stopped,
    stopped_over,
    write_plan,
)
from holdfast_sidecar.policy.requests import take_in
from holdfast_sidecar.policy.restart import await_evidence, reform
from holdfast_sidecar.policy.running import watch
from holdfast_sidecar.policy.start import begin, given_back
from holdfast_sidecar.policy.withheld import overtaken
from holdfast_sidecar.records.plan import TERMINAL, Plan
from holdfast_sidecar.store.protocol import Section


def _amid(cluster: Cluster, plan: Plan, stop: str) -> tuple[Write, ...]:
    """A stop that somebody asked for while an incident was not over: nothing follows it now."""
    incident = cluster.incidents.get(plan.incident)
    if incident is None or incident.decided:
        return ()
    return (amend(cluster, stopped_over(incident, stop)),)


def decide(cluster: Cluster, circumstances: DecisionContext) -> Decision:
    """One step for the plan."""
    if cluster.plan is None and is_attached(cluster):
        return observe(cluster, circumstances)
    if (known := given_back(cluster, circumstances)) is not None:
        return known
    outcome = _next_step(cluster, circumstances)
    writes = tuple(
        requeue.limited(one, cluster, circumstances) if one.section is Section.PLAN else one
        for one in outcome.writes
    )
    return dataclasses.replace(outcome, writes=writes)


def _next_step(cluster: Cluster, circumstances: DecisionContext) -> Decision:
    plan = cluster.plan
    if plan is None or plan.state in TERMINAL:
        return begin(cluster, circumstances, after=plan)
    if (stop := cluster.asked_to_stop()) is not None:
        ended = write_plan(cluster, stopped(plan, circumstances, 0, stop)).writes
        left = (*overtaken(cluster, plan, circumstances.now_unix_s), *_amid(cluster, plan, stop))
        return Decision((*left, *ended))
    if (changed := take_in(cluster, plan, circumstances)) is not None:
        return changed
    if plan.state == "running":
        return watch(cluster, plan, circumstances)
    if plan.state == "evidence":
        return await_evidence(cluster, plan, circumstances)
    return reform(cluster, plan, circumstances)
