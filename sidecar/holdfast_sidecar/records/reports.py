"""What a launcher says of its node, and how its ranks ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast_sidecar.config.settings import CheckpointSettings
from holdfast_sidecar.records.checkpoint import SavedPart, SnapshotReport, TracedPart
from holdfast_sidecar.records.collectives import RankTrace
from holdfast_sidecar.records.findings import Finding
from holdfast_sidecar.records.steps import SlownessReport


@dataclass(frozen=True)
class Life:
    """What a sidecar that is asked whether its node lives answers."""

    has_launcher: bool
    ranks: int
    """Of this attempt that live there."""
    step: int
    """Steps that all of them completed; -1: not known."""


NOTHING_KNOWN = Life(has_launcher=True, ranks=0, step=-1)


@dataclass(frozen=True)
class LifeSign:
    """What round trips say of another node of the attempt."""

    answered_s: float | None = None
    """When the newest question was sent that it answered, monotonic; None: it never answered, so
    that its silence means nothing."""
    unanswered: int = 0
    """Rounds since in which it was asked directly and through others, and nothing came back."""
    life: Life = NOTHING_KNOWN
    since_step_s: float = 0.0
    """Since when it has told the same step, monotonic."""


OF_USER = "user "
"""Begins the word for a launch that nothing names but whose it is: all of a user's are alike."""

OUTPUT_UNREAD = "nobody reads what this launch prints any more"
"""The message of a rank that wrote into a pipe whose reader has gone, as in `... | head`."""


@dataclass(frozen=True)
class Exit:
    """How one rank's process ended, as its parent saw it. `at_unix_s` is the node's wall clock."""

    rank: int
    local_rank: int
    pid: int
    exit_code: int
    """Negative: ended by that signal."""
    at_unix_s: float
    order: int
    """0 for the first rank of this node and attempt that ended."""
    message: str = ""
    """Type and text of the exception, when it left one."""
    step: int = 0
    """Steps it had completed, from its page."""
    forced: bool = False
    """The launcher itself ended it while tearing down."""
    onset_step: int = -1
    """Since which step its losses had not been finite; -1: the newest one was."""
    is_gloo_alone: bool = False
    """Its process groups used no other backend: nothing that watches a device aborted it."""
    stepped_unix_s: float = 0.0
    """When its last step ended, or it began, from its page; 0: it left none."""


@dataclass(frozen=True)
class AgentReport:
    """A launcher (or torchrun's agent through our rendezvous handler) about its node.

    state: `joining` (wants into an attempt; a spare stays so), `running` (its ranks run attempt
    `attempt`), `failed` (a rank of `attempt` ended badly; the others are being ended), `succeeded`
    (all ranks of `attempt` ended well), `left` (it is going away).

    While joining, `attempt` is the newest attempt whose end this agent knows of: the one it last
    ran, or, at its start, the one a plan already `done` or `stopped` speaks of; else -1. A plan
    that ends a later attempt than that is meant for this agent too (a waiting spare leaves then).
    """

    node: str
    incarnation: str
    state: str
    attempt: int
    beat: int
    slots: int
    address: str
    min_nodes: int
    max_nodes: int
    spares: int = 0
    max_restarts: int | None = None
    last_call_s: float = 30.0
    version: str = ""
    torch_version: str = ""
    machine: str = ""
    role: str = "default"
    """torchrun's --role: torch numbers ranks inside their role too."""
    pid: int = 0
    exits: list[Exit] = field(default_factory=list)
    steps: dict[str, int] = field(default_factory=dict)
    """While joining: rank -> steps it had completed when `attempt` ended here, from its page."""
    plan: str = ""
    """The plan it obeys, verbatim: an emptied server gets it back from here."""
    preempted_by: str = ""
    """Signal that asked for this node; empty: none did. The launcher leaves `grace_s` after it."""
    grace_s: float = 0.0
    left_s: float = 0.0
    """Until a time limit ends this node, as of this beat; 0: none is known."""
    ended_sidecar: int = 0
    """Pid of the newest sidecar that this launcher, its parent, saw end; 0: none did."""
    warm_modules: list[str] = field(default_factory=list)
    """What its ranks had imported at their first step, for a spare to import ahead; empty: not
    known yet, or to be started cold."""
    leaves: bool = False
    """It was told to end, and ends its ranks: how they end now says nothing of the job."""
    left_for: str = ""
    """Signal for which it leaves at once; empty: none came."""
    launch: str = ""
    """Which launch it belongs to: its scheduler's word for it, else whose it is. Launchers of two
    never share an attempt."""
    launch_number: int = 0
    """How often its scheduler had started that launch again: what it started before is dead."""
    launch_command: str = ""
    """A digest of script and arguments, but for what is a node's own in them."""
    has_launch_id: bool = False
    """A scheduler, or whoever started the nodes, gave them an id in common: their commands may
    differ. Without one launchers that differ in their command are of two launches."""
    command: dict[str, str] = field(default_factory=dict)
    """What was to be run, in parts: what it is -> a digest of it, or the thing itself."""
    unreachable: str = ""
    """Where the store of attempt `unreachable_in` is published and cannot be reached from here."""
    unreachable_in: int = -1
    awaits_gate: bool = False
    """There is something here that only its sidecar can judge, and one is there or being started:
    before it is taken in, its verdict is waited for a little."""

    @property
    def launch_key(self) -> tuple[str, str]:
        """By which launches are told apart."""
        return self.launch, "" if self.has_launch_id else self.launch_command


# What a sidecar says of one rank.

FINISHED = 1
"""page.Ending.FINISHED, as a RankReport carries it."""


@dataclass(frozen=True)
class RankReport:
    """A rank as its sidecar sees it."""

    rank: int
    local_rank: int
    pid: int
    step: int
    phase: str
    phase_age_s: float
    step_s: float
    """Median wall time of its latest steps, seconds; 0 when unknown."""
    own_s: float
    """Median own time (waiting for others removed), seconds; 0 when unknown."""
    loss: float | None = None
    ending: int = 0
    alive: bool = True
    state_registered: bool = False
    resumed_step: int = 0
    in_loop: bool = False
    """Its loop has begun, so what it resumed from is known; 0 means from nothing from then on."""
    resume_failures: int = 0
    exit_code: int | None = None
    """How its process ends or ended, as for an Exit; None: alive, or not known here."""
    exception: str = ""
    """Type and text of the exception that ended it, if one did and it could say so."""
    is_loss_finite: bool = True
    """False: the newest loss is NaN or infinite, which JSON can't say, and `loss` is None."""
    nonfinite_losses: int = 0
    """Losses of this attempt that were NaN or infinite."""
    onset_step: int = -1
    """Since which step numbers have not been finite, without a break; -1: the newest are."""
    gradient_norm: float | None = None
    is_gradient_finite: bool = True
    """As `is_loss_finite`."""
    nonfinite_gradients: int = 0
    """Gradient norms of this attempt that were NaN or infinite."""
    ill_steps: int = 0
    """So often in a row a loss or a gradient norm was not finite."""
    spike_onset: int = -1
    """Since which step they spike; -1: they don't."""
    spikes: int = 0
    """Spikes of this attempt so far."""
    power_w: float | None = None
    """Average power of its GPUs in the last minute; None: not known."""
    tokens_per_s: float | None = None
    """Tokens that it says it trains on; None: it says nothing of them."""
    is_gloo_alone: bool = False
    """As for an Exit."""
    layout: str = ""
    """Where it stands in the parallel layout, `pp=0/2 dp=1/2 role=reader`: of each dimension where,
    and of how many; last what its script calls its part in the job. Empty: not known."""
    groups: list[str] = field(default_factory=list)
    """Its first process groups, whose waits its step lines tell apart: title, digest of the members
    and how many they are, `mesh_dp/3fa2c1/8`; an empty one where there is none."""
    busy: str = ""
    """What its script says that it is busy with; empty: it says nothing."""
    stopped_ago_s: float | None = None
    """For how long its process has not been stopped (state T), 0: it is; None: for a minute."""
    stood_since_unix_s: float = 0.0
    """Of a rank that has died: its last progress, where it had been silent for too long before; 0:
    it died at work."""
    model_flops: float = 0.0
    """Of one of its steps; 0: not known."""
    hardware_flops: float = 0.0
    """The same with what activation checkpointing computes again; 0: not known."""
    peak_flops: float = 0.0
    """A second, what its device could do at best; 0: not known."""
    memory_allocated: int = 0
    """Bytes of its device that tensors hold."""
    memory_reserved: int = 0
    """Bytes that torch's allocator holds, tensors included."""
    memory_peak: int = 0
    """The most that was reserved in this attempt, bytes."""
    memory_total: int = 0
    """Bytes that its device has; 0: it trains on none, or nothing is known of it."""
    collectives: list[int] = field(default_factory=list)
    """Collectives and messages that it began so far, in each of its first process groups."""
    memory_retries: int = 0
    """So often the allocator had to give back what it kept before it found room."""
    window_s: float = 0.0
    """The longest of its latest windows between two calls of the optimizer, seconds; 0: unknown."""

    @property
    def doing(self) -> str:
        """Its phase, or what its script calls it."""
        return self.busy or self.phase

    @property
    def has_finished(self) -> bool:
        """Whether it says that it ended well."""
        return self.ending == FINISHED

    @property
    def has_left(self) -> bool:
        """Whether it ended with code 0, before its time or not, or says that it does."""
        if self.alive:
            return self.has_finished
        return self.exit_code == 0

    @property
    def tells_numbers(self) -> bool:
        """Whether it ever told a loss or a gradient norm."""
        is_told = self.loss is not None or self.gradient_norm is not None
        return is_told or not self.is_loss_finite or not self.is_gradient_finite


# Whether a node is fit for an attempt, and what came of putting it to the test.


@dataclass(frozen=True)
class GateVerdict:
    """Whether a node is fit for an attempt, by its own sidecar's newest readings.

    state: `fit`, `unfit`, or `unknown` while nothing was read yet.
    """

    state: str
    reasons: list[str] = field(default_factory=list)
    """Why it is not fit, worst first."""
    checked_unix_s: float = 0.0
    """On the node's wall clock."""
    blind: list[str] = field(default_factory=list)
    """Checks that could not be made, as `check: why`: the node counts as fit for these."""
    after: str = ""
    """Incident for which this node was blamed, and after whose end it was checked."""
    gpus: int | None = 0
    """That are there and well; None: the driver does not say."""
    gpus_all: int = 0
    """That should be there."""
    works: bool = False
    """It is unfit, and an attempt would run on it all the same, if not as it should: it is taken in
    where too few others are there."""


@dataclass(frozen=True)
class Exertion:
    """A node was put to the test for some seconds. state: `running`, `done`, `failed`, `refused`.

    `figures` are of the slowest device: matmul_flops_per_s, memory_bytes_per_s,
    all_reduce_bytes_per_s.
    """

    asked_by: str
    """Identifier of the request, or of the incident, that it was made for."""
    state: str
    reason: str = ""
    """What it is at while it runs, else why it failed or was refused."""
    wrong: list[str] = field(default_factory=list)
    """What came out wrong: a sum, a pattern in memory."""
    figures: dict[str, float] = field(default_factory=dict)
    device: str = ""
    """`cpu`, or the model of the GPUs: only what is alike is compared."""
    devices: int = 0
    ended_unix_s: float = 0.0
    took_s: float = 0.0

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes."""
        return self.state != "running"


# What a sidecar says of its node: the ranks, what was found, what it has and did.


@dataclass(frozen=True)
class ProbeHealth:
    """How a probe fares. Times are monotonic seconds."""

    name: str
    is_up: bool
    failures: int
    duration_s: float
    error: str = ""
    failing_since_s: float = 0.0


@dataclass(frozen=True)
class NodeReport:
    """A sidecar about its node."""

    node: str
    incarnation: str
    beat: int
    floor_attempt: int
    """The highest attempt this node ever obeyed, from its disk."""
    floor_epoch: int
    """The highest leader's epoch this node ever obeyed or saw granted."""
    floor_leader: str = field(default="", kw_only=True)
    """Who led in that epoch as this node saw it; empty: not known any more."""
    attempt: int
    launcher_alive: bool
    ranks: list[RankReport] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    doubts: bool = False
    """Whether a rank here will soon be silent for too long: every node asks its own, then."""
    traces: list[RankTrace] = field(default_factory=list)
    """Where its ranks stand in their collectives; only while some node doubts."""
    evidence_for: str = ""
    """Incident whose evidence this node has finished collecting."""
    where_ranks_stood: dict[str, str] = field(default_factory=dict)
    """rank -> where its main thread stood, from that evidence."""
    bundles: dict[str, str] = field(default_factory=dict)
    """incident -> where this node packed what it kept of it, as `host:path`; the newest few."""
    saved: SavedPart | None = None
    metrics_address: str = ""
    unserved: str = ""
    """Why it serves neither metrics nor a page, and how to mend it; empty: it does."""
    echo_address: str = ""
    """Where this sidecar answers round-trip packets, host:port (UDP); empty: nowhere."""
    mode: str = "act"
    modes: dict[str, str] = field(default_factory=dict)
    """Fault -> what may be done about it here, where that is not `mode`."""
    pid: int = 0
    launcher_pid: int = 0
    """Launcher this sidecar watches; `launcher_alive` says nothing about any other."""
    version: str = ""
    waiting: str = ""
    """Why the leader, if it is this sidecar, takes no step yet; empty while it need not wait."""
    staying: dict[str, str] = field(default_factory=dict)
    """From the leader alone: who is slow -> why its node is not replaced."""
    snapshot: SnapshotReport | None = None
    preempted_by: str = ""
    """Why this node will soon be taken away (SIGTERM, a time limit); empty: it won't."""
    attached: bool = False
    """Somebody else launched the ranks; they are only watched."""
    checkpoint: CheckpointSettings | None = None
    """How checkpoints are made, from the leader alone: a command may run with other settings."""
    hooks: dict[str, str] = field(default_factory=dict)
    """Key of a HookRun -> its outcome, of those that this sidecar ran; the newest few."""
    host: str = ""
    """What the machine calls itself; two machines may have the same name."""
    boot: str = ""
    """Id that the kernel gave itself at its start; empty: it can't be read."""
    gate: GateVerdict | None = None
    exertion: Exertion | None = None
    """The newest test that this node was put to."""
    steps: list[str] = field(default_factory=list)
    """What its ranks' latest steps were like, several lines a rank; see `records.steps`."""
    traced: TracedPart | None = None
    """What became of the trace that is ordered, on this node; None: none is, or not here."""
    slow: SlownessReport | None = None
    """Who is slow and why: from the leader alone, and of its own ranks while the store is away."""

    @property
    def candidate(self) -> str:
        """This sidecar as a candidate for the lease."""
        return f"{self.node}/{self.incarnation}"


# How well a job's steps go: what a report of it is made from, live or as a node keeps it.


@dataclass(frozen=True)
class Point:
    """Where a rank stood when a step had just ended, CLOCK_MONOTONIC."""

    at_s: float
    joules: float
    step: int
    tokens: int


@dataclass(frozen=True)
class RankEnergy:
    """One rank. Its joules count on over restarts, the points are those of one process."""

    pid: int = 0
    start_ticks: int = 0
    joules: float | None = None
    """Since this sidecar began; None: its GPUs, or what they draw, are not known."""
    power_w: float | None = None
    """Average of the last minute."""
    seen_step: int = -1
    """Steps that this process had completed when it was last looked at; -1: not looked at yet."""
    points: tuple[Point, ...] = ()

    @property
    def step_joules(self) -> float | None:
        """Joules for one step, over the latest steps; None before two were seen to end."""
        return self._per(lambda point: point.step)

    @property
    def token_joules(self) -> float | None:
        """Joules of this rank for one of its tokens; None unless it tells them."""
        return self._per(lambda point: point.tokens)

    @property
    def tokens_per_s(self) -> float | None:
        """The pace of the same steps; None unless it tells tokens."""
        if len(self.points) < 2 or not self.points[-1].tokens:
            return None
        first, last = self.points[0], self.points[-1]
        return (last.tokens - first.tokens) / (last.at_s - first.at_s)

    def _per(self, count: Callable[[Point], int]) -> float | None:
        if len(self.points) < 2 or self.joules is None:
            return None
        first, last = self.points[0], self.points[-1]
        done = count(last) - count(first)
        return (last.joules - first.joules) / done if done > 0 else None


UNMETERED = RankEnergy()


@dataclass(frozen=True)
class RankSteps:
    """One rank's newest steps, and the memory of its device. Sizes in bytes; 0: not known."""

    rank: int
    node: str
    line: str = ""
    """A records.steps.StepLine of a block that most ranks told of; empty: it told nothing of it."""
    memory_allocated: int = 0
    memory_reserved: int = 0
    memory_peak: int = 0
    memory_total: int = 0
    memory_retries: int = 0


@dataclass(frozen=True)
class Losses:
    """Seconds of the whole job, over all attempts of a run or of several."""

    watched_s: float = 0.0
    by_cause: dict[str, float] = field(default_factory=dict)
    by_rank: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Performance:
    """A run's steps as they were last seen."""

    began_unix_s: float
    """When the run began, as its plan has it; 0: not known."""
    world_size: int
    standing: SlownessReport | None
    """None: nobody has judged its steps yet."""
    ranks: list[RankSteps] = field(default_factory=list)
    """All of them, or the slowest and a few to compare with."""
    left_out: int = 0
    """Ranks that are not among them."""
    staying: dict[str, str] = field(default_factory=dict)
    """Who is slow -> why its node is not replaced, where policy would have it."""
