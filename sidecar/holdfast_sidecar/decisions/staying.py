"""Why nodes of slow ranks stay where they are, though policy would have them replaced. Pure."""

from __future__ import annotations

from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.decisions.modes import mode_of_job
from holdfast_sidecar.decisions.outcome import Circumstances
from holdfast_sidecar.decisions.replacing import (
    STRAGGLER,
    Replacement,
    Saved,
    hindrance,
    how_saved,
    incident_of,
    own_standing,
    price,
    well_beside,
)
from holdfast_sidecar.decisions.saving_first import can_be_saved
from holdfast_sidecar.decisions.spares import find_spares
from holdfast_sidecar.decisions.worth_replacing import not_its_node, not_yet
from holdfast_sidecar.records.formatting import who
from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.records.steps import Slowness, SlowStanding

MOST = 8
"""Of those who are slow: more is no page."""

SAVING = {
    Saved.NO: "the next checkpoint is not reached yet",
    Saved.UNDER_WAY: "its checkpoint is being made",
    Saved.FAILED: "its checkpoint failed",
    Saved.YES: "it is about to be",
}


def why_they_stay(cluster: Cluster, plan: Plan, circumstances: Circumstances) -> dict[str, str]:
    """Who is slow -> why nobody takes the place; nothing where that is not wanted at all."""
    standing = own_standing(cluster, plan, circumstances.leader)
    if standing is None or circumstances.settings.policy.replace_slow_after_s <= 0:
        return {}
    worst = sorted(standing.slow, key=lambda one: -one.gain)[:MOST]
    return {who(one): _why(one, standing, cluster, plan, circumstances) for one in worst}


def _why(
    one: Slowness,
    standing: SlowStanding,
    cluster: Cluster,
    plan: Plan,
    circumstances: Circumstances,
) -> str:
    """First what no patience helps against."""
    settings, beside = circumstances.settings, well_beside(one, standing, plan)
    if why := not_its_node(one, beside):
        return why
    if one.node not in {member.node for member in plan.members}:
        return "its node is not in this attempt"
    spell, restart_s = circumstances.slow.get(one.node), price(cluster, circumstances)
    spares = find_spares(cluster, plan, one.node)
    if not spares:
        return "no spare waits that could take its place"
    if why := hindrance(cluster, plan, one, circumstances):
        return why
    if (mode := mode_of_job(settings, STRAGGLER)) != "act":
        return f"the mode for it is {mode}"
    if plan.pause is not None:
        return "the job is paused"
    if why := not_yet(one, spell, restart_s, settings.policy, beside):
        return why
    found = Replacement(one, spares[0].node, 0.0, restart_s)
    if not can_be_saved(incident_of(found, plan), cluster, plan):
        return "the job can't be saved before (that takes the three lines and --checkpoint-dir)"
    return SAVING[how_saved(found, cluster, plan, circumstances.now_unix_s)]
