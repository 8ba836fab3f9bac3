"""Whether it is worth a restart to go on without a slow node: only when it has been slow for long,
for a reason that stays with it, and when the job has lost as much by it as the restart will cost.

To act then is the rule for renting or buying skis: nobody knows how long the job still runs, and
who buys once the rents come to the price never pays more than twice what hindsight would. Pure.
"""

from __future__ import annotations

import statistics

from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.decisions.endurance import CARRIED, Spell
from holdfast_sidecar.decisions.schedule import cost_of
from holdfast_sidecar.records.slowness import Slowness
from holdfast_sidecar.settings import PolicySettings
from holdfast_sidecar.slow_words import percent
from holdfast_sidecar.span import span

SURE = 0.9
"""Of who it is and why: one wrong in ten is as much as anybody would restart for."""

JUDGEMENTS = 10
"""So often it must have been judged slow, however long the steps are: as many as it takes to call
a rank slow at all, once more."""

LEAST_GAIN = 0.05
"""Healthy nodes differ by 1 to 5 %: below that the spare may be as slow."""

ASSUMED_RESTART_S = 120.0
"""What a restart takes as long as this job has had none: imports, groups, state, the first steps.
Small jobs need seconds; FT-HSDP (arXiv 2602.00277) reports 200 s at 16,000 GPUs."""

MEASURED = 3
"""The newest restarts that its cost is the median of."""


def obstacle(one: Slowness, spell: Spell | None, restart_s: float, policy: PolicySettings) -> str:
    """Why its node is not replaced for this slowness, whoever waits; empty: it should be."""
    after_s = policy.replace_slow_after_s
    if after_s <= 0:
        return "policy.replace_slow_after_s is 0"
    if not one.node or one.cause not in CARRIED:
        return f"another node is no help against {one.cause.value}"
    if not one.is_persistent:
        return "it may pass"
    if one.confidence < SURE:
        return f"only {one.confidence:.0%} sure"
    if spell is None or spell.judgements < JUDGEMENTS or spell.lasted_s < after_s:
        return f"not seen for {span(after_s)} yet"
    if spell.gain < LEAST_GAIN:
        return f"the job would be only {percent(spell.gain)} faster"
    if spell.lost_s < restart_s:
        return f"it cost {span(spell.lost_s)} so far, a restart costs {span(restart_s)}"
    return ""


def restart_cost_s(cluster: Cluster) -> float:
    """What a planned restart costs this job: from the end of an attempt until all ranks step in the
    next, and what a checkpoint keeps the loop."""
    known = sorted(
        (i for i in cluster.incidents.values() if i.recovered_unix_s and i.ended_unix_s),
        key=lambda incident: incident.detected_unix_s,
    )
    took = [i.recovered_unix_s - i.ended_unix_s for i in known if i.decided == "restart"]
    down_s = statistics.median(took[-MEASURED:]) if took else ASSUMED_RESTART_S
    saving = cost_of(cluster.ledger.values())
    return down_s + (0.0 if saving is None else saving.blocked_s)
