"""What the leader wants of everyone: who runs, from which state, and what is out of the way."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast_sidecar.records.quarantine import HookRun, Quarantine

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
class Pause:
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
    pause: Pause | None = None
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
