"""What the leader wants of everyone: who runs, from which state, and what is out of the way."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

# A node that is kept outside, and the command of the user's that is run for it.

DONE = "done"
"""Outcome of a command that went well; any other says what went wrong."""


@dataclass(frozen=True)
class Quarantine:
    """A node that is kept outside; `part`: the machine that is meant (see decisions.quarantine)."""

    part: str
    node: str
    since_unix_s: float
    until_unix_s: float
    evidence: list[str] = field(default_factory=list)
    by: str = ""
    """Who asked for it; empty: it was blamed too often, or its hardware is ill."""
    gpu: str = ""
    """UUID of the GPU that it is kept outside for; empty: the whole machine is meant."""
    remedy: str = ""
    """A remedy.Remedy: what ends it before its time; empty: nothing but a person does."""
    boot: str = ""
    """Boot id of the machine when it was put there; another one means it was rebooted since."""
    incident: str = ""
    """For which it was put there; empty: a person did."""
    is_drained: bool = field(default=False, kw_only=True)
    """By `holdfast node drain`: it is not let in though it be needed."""


@dataclass(frozen=True)
class HookRun:
    """A command of the user's that is run because a node is kept outside, or let in again.

    event: `quarantine` or `return`. What it is about stands here, for the quarantine may be over.
    """

    part: str
    node: str
    since_unix_s: float
    event: str
    by: str
    """Candidate whose sidecar runs it; empty: there is no command for this."""
    outcome: str = ""
    """DONE, or what went wrong; empty: not over yet."""
    reason: str = ""
    gpu: str = ""
    remedy: str = ""

    @property
    def key(self) -> str:
        """By which its outcome is told."""
        return f"{self.event}:{self.part}:{self.since_unix_s:.3f}"


TERMINAL = frozenset({"done", "stopped"})
"""States of a plan after which nothing more happens in its run."""

STORY = "holdfast explain "
"""Before an incident's identifier, in a message that tells of one."""


@dataclass(frozen=True)
class Member:
    """A node's place in an attempt."""

    node: str
    incarnation: str
    node_rank: int
    first_rank: int
    slots: int
    role: str = "default"

    @property
    def ranks(self) -> range:
        """The ranks that it runs."""
        return range(self.first_rank, self.first_rank + self.slots)


@dataclass(frozen=True)
class Candidate:
    """What ranks may try to load.

    tier `durable`: the checkpoint in `path`. tier `snapshot`: the newest step that all ranks find
    in their slots, which they agree on by themselves; `step` is the leader's guess, -1 for none.
    """

    identifier: str
    path: str
    step: int
    tier: str = "durable"
    fetches: dict[str, str] = field(default_factory=dict)
    """Of a snapshot: rank -> node that has a copy; its sidecar's fetch comes first."""
    since: int = 0
    """Of a snapshot: the first attempt whose slots count; the job went back behind earlier ones."""
    below: int | None = None
    """Of a snapshot: only one of fewer steps counts, as numbers went wrong from there on; None: any
    does."""
    is_last: bool = False
    """Of a snapshot: there are checkpoints, and none of them may be gone on from. Where it is whole
    on no step, the job ends rather than start from nothing."""
    is_good: bool = False
    """Of a checkpoint: the job ran on from it and stayed well."""

    @property
    def words(self) -> str:
        """What it is, for people. Which snapshot is the newest the ranks know better than this."""
        if self.tier == "durable":
            return f"step {self.step}"
        if self.fetches:
            return f"the snapshots of step {self.step}"
        if self.below is not None:
            return f"the newest snapshot before step {self.below}"
        known = f" (step {self.step} or later)" if self.step >= 0 else ""
        return f"the newest snapshot{known}"


@dataclass(frozen=True)
class BatchSkip:
    """Batches that every rank passes over, before the one of step `step`."""

    step: int
    """Steps completed when they are passed over."""
    count: int


@dataclass(frozen=True)
class PauseWindow:
    """Somebody works on the job's surroundings: until the end nothing is done about faults."""

    by: str
    reason: str
    since_unix_s: float
    until_unix_s: float
    """By the leader's clock, which takes the pause out of the plan then."""


@dataclass(frozen=True)
class Requeues:
    """How often in a row a launch was ended to be started again, and no step was made between."""

    count: int = 0
    step: int = 0
    """The furthest that it had come by then."""
    launch: str = ""
    """Which launch that was, as AgentReport has it: another one begins anew."""
    command: str = ""
    """What that launch runs, as AgentReport.launch_command has it."""
    has_stepped: bool = False
    """Some run of that launch completed a step, also where nobody resumed from it."""


@dataclass(frozen=True)
class Plan:
    """What the leader wants of everyone; the only thing that starts or ends an attempt.

    state: `running` (members run attempt `attempt`), `evidence` (keep what would die; then the
    sidecar of `culprit_node` ends `culprit_ranks`), `ended` (members end their ranks and join
    again), `done` (every rank ended well), `stopped` (end everything, leave with `exit_code`).
    """

    attempt: int
    epoch: int
    state: str
    members: list[Member] = field(default_factory=list)
    world_size: int = 0
    resume: list[Candidate] = field(default_factory=list)
    incident: str = ""
    cause: str = ""
    culprit_node: str = ""
    culprit_ranks: list[int] = field(default_factory=list)
    exit_code: int = 0
    message: str = ""
    restarts: int = 0
    began_unix_s: float = 0.0
    """When this run's first attempt was opened, by its leader's wall clock; 0: not known."""
    skips: list[BatchSkip] = field(default_factory=list)
    """Batches on which numbers went wrong, in earlier attempts."""
    pause: PauseWindow | None = None
    resumed_unix_s: float = 0.0
    """When the last pause was over: what had to wait for it has its time from then on."""
    outside: list[Quarantine] = field(default_factory=list)
    """Nodes that are not taken into an attempt."""
    hooks: list[HookRun] = field(default_factory=list)
    """What was run for nodes that are outside, and is run for those that came back."""
    waits: str = ""
    """While `ended`: why the next attempt is not opened yet, for people."""
    first_attempt: int = 0
    """With which this run began: incidents of earlier attempts are those of runs before it."""
    requeues: Requeues = field(default_factory=Requeues)
    """Up to this run, and with its own end once it is `stopped` to be started again."""

    @property
    def said(self) -> str:
        """Its message; empty while that tells of an incident before the one that it ends for."""
        is_of_another = STORY in self.message and self.incident not in self.message
        return "" if is_of_another else self.message


# What a person asked the leader, or a node's sidecar, for.


@dataclass(frozen=True)
class Request:
    """What a person asked for. kind: `checkpoint`, `stop`, `restart` (without `node`, if given),
    `pause` (for `for_s`), `resume` (or only: let `node` in again), `drain` (keep `node` outside for
    `for_s`), `return` (let it in again), `test` (put `node` to the test; its sidecar answers),
    `trace` (profile `ranks` for `steps`, within `for_s`)."""

    identifier: str
    kind: str
    by: str = ""
    at_unix_s: float = 0.0
    refused: str = ""
    """Why it came to nothing; the leader's word for whoever asked, who then removes it."""
    reason: str = ""
    for_s: float = 0.0
    node: str = ""
    is_forced: bool = False
    """Do it although it harms: test a node whose ranks run, drain one that is needed."""
    ranks: list[int] = field(default_factory=list)
    """To be traced; none: the slowest one and a healthy peer."""
    steps: int = 1
    at_step: int = 0
    """The step to trace from; 0: the next one that all ranks hear of in time."""


# One failure, from its first finding until steps are made again; what was withheld of it.

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
    """What metrics counted it as before it was known better; see `policy.budget`."""

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
