"""What the parts tell each other through the store: plain records, JSON on the wire.

Everything is level, not event: a report says what is so now, the plan says what shall be, and
whoever missed a wake-up reads the same truth a moment later.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import cache, lru_cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from holdfast_sidecar.collective_trace import RankTrace
from holdfast_sidecar.findings import Finding
from holdfast_sidecar.settings import CheckpointSettings

T = TypeVar("T")

_ENCODER = json.JSONEncoder(separators=(",", ":"), sort_keys=True, default=vars, allow_nan=False)
"""A record by its fields, as they stand: `asdict` would first copy all of it, five times the cost
of writing it, at every heartbeat."""


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
    ends_unix_s: float = 0.0
    """When a time limit ends this node, on its own wall clock; 0: none is known."""
    ended_sidecar: int = 0
    """Pid of the newest sidecar that this launcher, its parent, saw end; 0: none did."""
    warm_modules: list[str] = field(default_factory=list)
    """What its ranks had imported at their first step, for a spare to import ahead; empty: not
    known yet, or to be started cold."""
    leaves: bool = False
    """It was told to end, and ends its ranks: how they end now says nothing of the job."""
    left_for: str = ""
    """Signal for which it leaves at once; empty: none came."""
    awaits_gate: bool = False
    """There is something here that only its sidecar can judge, and one is there or being started:
    before it is taken in, its verdict is waited for a little."""


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
    stood_since_unix_s: float = 0.0
    """Of a rank that has died: its last progress, where it had been silent for too long before; 0:
    it died at work."""

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


@dataclass(frozen=True)
class BatchSkip:
    """Batches that every rank passes over, before the one of step `step`."""

    step: int
    """Steps completed when they are passed over."""
    count: int


@dataclass(frozen=True)
class SavedPart:
    """This node's part of a coordinated checkpoint."""

    identifier: str
    states: dict[str, str] = field(default_factory=dict)
    """rank -> page.ReplyState name, lower case."""
    files: dict[str, FileFact] = field(default_factory=dict)
    """Relative path -> size and hash, of the files that this node's ranks wrote."""
    seconds: float = 0.0
    """From the ranks' replies until all was written and hashed."""
    blocked_s: float = 0.0
    """What it kept the slowest loop of this node."""
    error: str = ""
    done_bytes: int = 0
    total_bytes: int = 0
    """How far its files are, while they are written; zeros while that is not known."""


@dataclass(frozen=True)
class FileFact:
    """Size in bytes and SHA-256 in hex."""

    size: int
    sha256: str


@dataclass(frozen=True)
class SnapshotReport:
    """What a node has of snapshots. Steps by rank, as strings because JSON's keys are."""

    attempt: int = -1
    """Of the ranks that `wanted` and `taken` speak of."""
    slots: int = 0
    """Slots that each rank of this node has; 0: none (yet)."""
    wants: bool = False
    """Some rank asked for slots."""
    obstacle: str = ""
    """Why there are fewer slots than wished."""
    short_of: str = ""
    """What there is too little of for that: `shared_memory`, `memory`, or `state` where some ranks
    can't copy theirs."""
    copies_fit: bool = False
    """Whether the memory planned for this node has room for copies of another node's snapshots."""
    slot_bytes: int = 0
    """Of all slots and copies of this node."""
    held: dict[str, list[int]] = field(default_factory=dict)
    """rank -> sealed steps in its own slots, newest first."""
    copies: dict[str, list[int]] = field(default_factory=dict)
    """rank of another node -> sealed steps copied here, newest first."""
    newest: int = -1
    """Newest step that this node's ranks know to exist on all ranks; -1: none."""
    newest_sealed_s: float = 0.0
    """When this node's ranks had sealed that one, CLOCK_MONOTONIC of this node; 0: not known."""
    taken: int = 0
    blocked_s: float = 0.0
    """What one snapshot keeps a loop of this node, seconds: the median of the newest ones seen, of
    the slowest rank."""
    copied_for: dict[str, str] = field(default_factory=dict)
    """Identifier of a PeerOrder -> `copied` once this node's ranks hold it, `void` if one can't."""
    pulled: str = ""
    """Identifier of the PeerOrder whose copies this node has pulled, whole and checked."""
    peer_address: str = ""
    """host:port where other nodes fetch this one's snapshots; empty: nowhere."""
    failure_domain: str = ""


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
    snapshot: SnapshotReport | None = None
    preempted_by: str = ""
    """Why this node will soon be taken away (SIGTERM, a time limit); empty: it won't."""
    attached: bool = False
    """Somebody else launched the ranks; they are only watched."""
    checkpoint: CheckpointSettings | None = None
    """How checkpoints are made, from the leader alone: a command may run with other settings."""
    hooks: dict[str, str] = field(default_factory=dict)
    """Key of a HookRun -> its outcome, of those that this sidecar ran; the newest few."""
    boot: str = ""
    """Id that the kernel gave itself at its start; empty: it can't be read."""
    gate: GateVerdict | None = None
    exertion: Exertion | None = None
    """The newest test that this node was put to."""

    @property
    def candidate(self) -> str:
        """This sidecar as a candidate for the lease."""
        return f"{self.node}/{self.incarnation}"


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
    is_good: bool = False
    """Of a checkpoint: the job ran on from it and stayed well."""

    @property
    def words(self) -> str:
        """What it is, for people. Which snapshot is the newest the ranks know better than this."""
        if self.tier == "durable":
            return f"step {self.step}"
        if self.fetches:
            return f"the snapshots of step {self.step}"
        known = f" (step {self.step} or later)" if self.step >= 0 else ""
        return f"the newest snapshot{known}"


TERMINAL = frozenset({"done", "stopped"})
"""States of a plan after which nothing more happens in its run."""


@dataclass(frozen=True)
class Pause:
    """Somebody works on the job's surroundings: until the end nothing is done about faults."""

    by: str
    reason: str
    since_unix_s: float
    until_unix_s: float
    """By the leader's clock, which takes the pause out of the plan then."""


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
    """`done`, or what went wrong; empty: not over yet."""
    reason: str = ""
    gpu: str = ""
    remedy: str = ""

    @property
    def key(self) -> str:
        """By which its outcome is told."""
        return f"{self.event}:{self.part}:{self.since_unix_s:.3f}"


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


ATTEMPT_ENDED = "the attempt ended"
"""Why an order is void whose ranks went before they came to its step."""


@dataclass(frozen=True)
class CheckpointOrder:
    """A coordinated checkpoint. state: `armed`, `writing`, `complete`, `void`.

    `writing`: every rank has copied its part, the sidecars named in `writers` write it. From then
    on it needs no rank any more, and outlives its attempt.
    """

    identifier: str
    attempt: int
    epoch: int
    step: int
    path: str
    state: str
    deadline_s: float
    """Time from arming until it is void unless every rank is there and saves, seconds."""
    requested_by: str = ""
    """See `answers`; joined by commas."""
    reason: str = ""
    write_timeout_s: float = 0.0
    """How much longer those that save may take until all is written and hashed, seconds."""
    mode: str = "direct"
    """`direct`: ranks write by themselves and wait; `snapshot`: they copy, the sidecars write."""
    trigger: str = "periodic"
    """Why, for metrics: periodic, manual, preempt, failure, grow, finding."""
    writers: dict[str, str] = field(default_factory=dict)
    """Of a `snapshot` that every rank has: rank -> node that writes it, from its slot or copy."""
    since: int = 0
    """Slots that were sealed in earlier attempts don't count: the job went back behind them."""

    @property
    def answers(self) -> tuple[str, ...]:
        """Requests that it meets, or words for what else it is made for."""
        return names_in(self.requested_by)

    @property
    def came_too_late(self) -> bool:
        """Some rank was past the step when it heard of it: worth another try, further ahead."""
        return self.state == "void" and self.reason.endswith("missed")

    @property
    def is_overtaken(self) -> bool:
        """Its attempt ended before all ranks had copied: nothing is wrong with saving."""
        return self.state == "void" and self.reason == ATTEMPT_ENDED


@dataclass(frozen=True)
class SnapshotOrder:
    """How often ranks take snapshots. `every_steps` 0: not at all, for `reason`."""

    attempt: int
    epoch: int
    every_steps: int
    reason: str = ""


@dataclass(frozen=True)
class PeerOrder:
    """A snapshot that other nodes shall copy. state: `armed`, `complete`, `void`.

    With `peer=sync` it stands for the whole attempt: state `standing`, every snapshot is meant.
    """

    identifier: str
    attempt: int
    epoch: int
    step: int
    state: str
    deadline_s: float
    pulls: dict[str, str] = field(default_factory=dict)
    """node whose ranks' snapshots are copied -> node that pulls them."""
    reason: str = ""
    through: int = -1
    """Newest step of this attempt that every puller has: ranks and pullers keep it meanwhile."""
    failures: int = 0
    """Orders in a row, up to this one, that came to nothing and not for being late."""

    @property
    def came_too_late(self) -> bool:
        """Some rank was past the step when it heard of it: worth another try, further ahead."""
        return self.state == "void" and "no snapshot" in self.reason


@dataclass(frozen=True)
class AttemptKey:
    """Secret of an attempt (hex), with which sidecars prove to each other that they belong."""

    attempt: int
    secret: str = field(repr=False)


@dataclass(frozen=True)
class Request:
    """What a person asked for. kind: `checkpoint`, `stop`, `restart` (without `node`, if given),
    `pause` (for `for_s`), `resume` (or only: let `node` in again), `drain` (keep `node` outside for
    `for_s`), `return` (let it in again), `test` (put `node` to the test; its sidecar answers)."""

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


@dataclass(frozen=True)
class LedgerEntry:
    """A checkpoint in the ledger; the manifest beside its files is the truth.

    verdict: `complete`, `good` or `poisoned`.
    """

    identifier: str
    path: str
    step: int
    attempt: int
    epoch: int
    parent: str
    verdict: str
    size_bytes: int
    world_size: int
    at_unix_s: float
    load_failures: int = 0
    requested_by: str = ""
    """As in its order; kept here because the next order soon takes the order's place."""
    trigger: str = ""
    """As in its order."""
    nodes: list[str] = field(default_factory=list)
    """That wrote it."""
    blocked_s: float = 0.0
    """What it kept the slowest loop, seconds; 0: not known."""
    write_s: float = 0.0
    """What writing and hashing took the slowest node; 0: not known."""

    @property
    def answers(self) -> tuple[str, ...]:
        """See CheckpointOrder."""
        return names_in(self.requested_by)


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


LEFT_ALONE = "left_alone"
"""Numbers that the job lives with: nothing can or shall be done about them."""

WITHHELD = frozenset({"observe", "suggest", "paused", LEFT_ALONE})
"""What was decided about an incident that nothing was done about: only that it be known."""


def names_in(requested_by: str) -> tuple[str, ...]:
    """The names that stand in this field."""
    return tuple(filter(None, requested_by.split(",")))


def encode(record: Any) -> str:
    """A record as compact JSON."""
    return _ENCODER.encode(record)


def decode(kind: type[T], text: str) -> T | None:
    """A record from JSON; None when it is not one. Unknown fields are left out (newer writers).

    Remembered by text, because most fields have not changed since the last reading: a record is
    not to be altered.
    """
    return cast("T | None", _decode(cast("Any", kind), text))


@lru_cache(maxsize=512)
def _decode(kind: Any, text: str) -> Any:
    try:
        return _reader(kind)(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """A function that builds a value of this type from plain JSON; made once per type."""
    if get_origin(kind) is Union or type(kind).__name__ == "UnionType":
        inner = _reader(next(arg for arg in get_args(kind) if arg is not type(None)))
        return lambda value: None if value is None else inner(value)
    if get_origin(kind) is list:
        if get_args(kind)[0] is Finding:
            return lambda value: [one for each in value if (one := _known(each)) is not None]
        item = _reader(get_args(kind)[0])
        return lambda value: [item(each) for each in value]
    if get_origin(kind) is dict:
        item = _reader(get_args(kind)[1])
        return lambda value: {key: item(each) for key, each in value.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    if dataclasses.is_dataclass(kind):
        return _record_reader(kind)
    return lambda value: value


def _known(value: Any) -> Finding | None:
    """A finding; None of a kind, or with a remedy, that only newer sidecars know: the rest of what
    their nodes say, that they live above all, is understood."""
    try:
        return cast("Finding", _reader(Finding)(value))
    except ValueError:
        return None


def _record_reader(kind: Any) -> Callable[[Any], Any]:
    hints = get_type_hints(kind)
    readers = {f.name: _reader(hints[f.name]) for f in dataclasses.fields(kind)}
    return lambda value: kind(
        **{name: read(value[name]) for name, read in readers.items() if name in value}
    )
