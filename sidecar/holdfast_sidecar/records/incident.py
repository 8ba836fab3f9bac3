"""One failure, from its first finding until steps are made again; what was withheld of it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

LEFT_ALONE = "left_alone"
"""Numbers that the job lives with: nothing can or shall be done about them."""


WITHHELD = frozenset({"observe", "suggest", "paused", LEFT_ALONE})
"""What was decided about an incident that nothing was done about: only that it be known."""

NEVER_SEEN = "no step of this run was ever seen"
"""How the reason begins for which an incident of a run is over whose steps nobody sees."""


@dataclass(frozen=True)
class Incident:
    """One failure from first finding to first new step. Times are the leader's wall clock."""

    identifier: str
    attempt: int
    cause: str
    culprit_node: str = ""
    culprit_ranks: list[int] = field(default_factory=list)
    confidence: float = 0.0
    since_unix_s: float = 0.0
    detected_unix_s: float = 0.0
    decided: str = ""
    """`restart`, `stop`, or one of WITHHELD; empty: nothing yet."""
    ended_unix_s: float = 0.0
    reopened_unix_s: float = 0.0
    recovered_unix_s: float = 0.0
    step_reached: int = 0
    step_resumed: int = 0
    evidence: list[str] = field(default_factory=list)
    """What the judgement rests on."""
    signature: str = ""
    kept_by: list[str] = field(default_factory=list)
    """Nodes whose sidecars kept what would die, before anything was ended."""
    bundles: dict[str, str] = field(default_factory=dict)
    """node -> where what it kept is packed, as `host:path`."""
    onset_step: int = -1
    """First step of those numbers that were not finite when it ended; -1: they were finite."""
    culprit_part: str = ""
    """The machine of `culprit_node`, by which a node is kept outside."""
    is_of_script: bool = False
    """The script raised it: no machine is to blame."""
    is_of_surroundings: bool = False
    """Storage, network, a busy device or the like is to blame: it passes, and is no bug."""
    had_stepped: bool = False
    """Some attempt of its run had completed a step before it."""
    escalation: str = ""
    """How the restart went further than in place: `without_node`, `roll_back`; empty: it didn't."""
    withheld: str = ""
    """One of WITHHELD: so nothing was done about it at first; empty: it was acted on at once."""
    stopped_for: str = ""
    """Why the job was stopped over it; empty: it was not, or its evidence says it."""
    distrusts_from: int = -1
    """State of this step or later led straight to failures and is not resumed from; -1: none."""
    came_back: int = 0
    """How often it was seen again, where nothing was done about it."""
    went_over_into: str = ""
    """Cause of numbers that are wrong in another way since `ended_unix_s`; empty: none came."""
    gpu: str = ""
    """UUID of the GPU that is to blame; empty: none is, or another part of the node."""
    remedy: str = ""
    """A remedy.Remedy: what that part needs before it is used again, as far as it was reckoned with
    in what was decided; empty: it was not, or no hardware is to blame."""
    seen_as: str = ""
    """Cause that it was told by before its hardware was known to be to blame; empty: it never was
    by another."""
    fault_unix_s: float = 0.0
    """Since when that part is ill, on its node's wall clock; 0: no hardware is to blame."""
    counted_before: list[str] = field(default_factory=list)
    """What metrics counted it as before it was known better; see `decisions.counting`."""

    @property
    def is_over_unseen(self) -> bool:
        """Whether it is over as all ranks lived on, or ended well, though no step was seen."""
        return any(reason.startswith(NEVER_SEEN) for reason in self.evidence)


def with_what_was_known(kept: Incident, told: Incident) -> Incident:
    """What is told of an incident now, with what was known of it before.

    A leader whose store came back empty tells an incident anew from the plan that names it: later,
    of nothing that was seen, and sure of nothing. What its finding said is then as it was kept, and
    what was done since is as it is told.
    """
    is_anew = told.detected_unix_s > kept.detected_unix_s and told.confidence < kept.confidence
    if told.identifier != kept.identifier or not is_anew:
        return told
    nothing = Incident("", -1, "")
    untold = {
        one.name: getattr(kept, one.name)
        for one in dataclasses.fields(told)
        if getattr(told, one.name) == getattr(nothing, one.name)
    }
    more = [reason for reason in told.evidence if reason not in kept.evidence]
    return dataclasses.replace(
        told,
        **{
            **untold,
            "confidence": kept.confidence,
            "since_unix_s": min(kept.since_unix_s, told.since_unix_s),
            "detected_unix_s": kept.detected_unix_s,
            "ended_unix_s": kept.ended_unix_s or told.ended_unix_s,
            "evidence": [*kept.evidence, *more],
        },
    )
