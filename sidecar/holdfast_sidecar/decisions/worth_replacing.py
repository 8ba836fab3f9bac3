"""Whether it is worth a restart to go on without a slow node: only when it has been slow for long,
for a reason that stays with it, and when the job has lost as much by it as the restart will cost.

To act then is the rule for renting or buying skis: nobody knows how long the job still runs, and
who buys once the rents come to the price never pays more than twice what hindsight would. Pure.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from holdfast_sidecar.config.settings import PolicySettings
from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.decisions.endurance import CARRIED, Spell
from holdfast_sidecar.decisions.schedule import cost_of
from holdfast_sidecar.records.formatting import percent, span
from holdfast_sidecar.records.steps import Cause, Slowness

SURE = 0.9
"""Of who it is and why: one wrong in ten is as much as anybody would restart for."""

JUDGEMENTS = 10
"""So often it must have been judged slow, however long the steps are: as many as it takes to call
a rank slow at all, once more."""

LEAST_GAIN = 0.05
"""Healthy nodes differ by 1 to 5 %: below that the spare may be as slow."""

ASSUMED_RESTART_S = 120.0
"""What a restart takes where this job has had none and nobody saw it start: imports, groups, state,
the first steps.
Small jobs need seconds; FT-HSDP (arXiv 2602.00277) reports 200 s at 16,000 GPUs."""

MEASURED = 3
"""The newest restarts that its cost is the median of."""


GUESSED = 2.0
"""So many times as long, and as much lost, where nothing was measured that a node could be to blame
for, and ranks beside it are well: then it is as likely the script's own doing, which a restart is
paid for twice."""

STARTS = 2.0
"""A restart takes no longer than so many starts: ranks are ended and evidence is kept before, state
is loaded after."""


@dataclass(frozen=True)
class Beside:
    """The ranks on the node of somebody slow."""

    well: int = 0
    """Ranks that are not slow."""
    slow: int = 1


def obstacle(
    one: Slowness,
    spell: Spell | None,
    restart_s: float,
    policy: PolicySettings,
    beside: Beside = Beside(),
) -> str:
    """Why its node is not replaced for this slowness, whoever waits; empty: it should be."""
    if policy.replace_slow_after_s <= 0:
        return "policy.replace_slow_after_s is 0"
    return not_its_node(one, beside) or not_yet(one, spell, restart_s, policy, beside)


def not_its_node(one: Slowness, beside: Beside) -> str:
    """Why another node would be no better."""
    if not one.node or one.cause not in CARRIED:
        against = "what nobody can explain" if one.cause is Cause.UNKNOWN else one.cause.value
        return f"another node is no help against {against}"
    if one.is_asleep and beside.well:
        are = "the other rank on its node is" if beside.well == 1 else "other ranks on its node are"
        return f"it sleeps or waits by itself, which is not the machine's doing: {are} well"
    return ""


def not_yet(
    one: Slowness, spell: Spell | None, restart_s: float, policy: PolicySettings, beside: Beside
) -> str:
    """Why it is not worth it by now."""
    doubt = GUESSED if is_doubtful(one, beside) else 1.0
    after_s, price_s = doubt * policy.replace_slow_after_s, doubt * restart_s
    guess = " (twice, as its cause is a guess)" if doubt > 1 else ""
    if not one.is_persistent:
        return "it may pass"
    if one.confidence < SURE:
        return f"only {one.confidence:.0%} sure"
    if spell is None or spell.judgements < JUDGEMENTS or spell.lasted_s < after_s:
        return f"not seen for {span(after_s)} yet{guess}"
    if spell.gain < LEAST_GAIN:
        return f"the job would be only {percent(spell.gain)} faster"
    if spell.lost_s < price_s:
        return f"it cost {span(spell.lost_s)} so far, a restart costs {span(restart_s)}{guess}"
    return ""


def is_doubtful(one: Slowness, beside: Beside) -> bool:
    """Whether it may as well be what the script does there. A GPU may be slow without a sign, and
    several ranks that are slow where nobody is well speak of what they share."""
    is_whole_node = beside.slow > 1 and not beside.well
    return one.is_guess and one.is_host_only and not is_whole_node


def restart_cost_s(cluster: Cluster, start_s: float | None = None) -> float:
    """What a planned restart costs this job: from the end of an attempt until all ranks step in the
    next, and what a checkpoint keeps the loop. start_s: what the first start took."""
    known = sorted(
        (i for i in cluster.incidents.values() if i.recovered_unix_s and i.ended_unix_s),
        key=lambda incident: incident.detected_unix_s,
    )
    restarts = [i for i in known if i.decided == "restart"]
    # What took no time was told by a clock that was set, or by two that differ.
    took = [s for i in restarts if (s := i.recovered_unix_s - i.ended_unix_s) > 0]
    assumed_s = ASSUMED_RESTART_S if start_s is None else STARTS * start_s
    down_s = statistics.median(took[-MEASURED:]) if took else assumed_s
    saving = cost_of(cluster.ledger.values())
    return down_s + (0.0 if saving is None else saving.blocked_s)
