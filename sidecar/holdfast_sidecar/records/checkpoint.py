"""A checkpoint from order to ledger: what is ordered, a node's part of it, what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from holdfast.contract.page import checkpoint_name

ATTEMPT_ENDED = "the attempt ended"
"""Why an order is void whose ranks went before they came to its step."""

LOOP_ENDED = "the loop ended before that step"


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
    """How much longer ranks that save may take, and how long writing and hashing may go on without
    progress, seconds."""
    mode: str = "direct"
    """`direct`: ranks write by themselves and wait; `snapshot`: they copy, the sidecars write."""
    trigger: str = "periodic"
    """Why, for metrics: periodic, manual, preempt, failure, grow, finding."""
    writers: dict[str, str] = field(default_factory=dict)
    """Of a `snapshot` that every rank has: rank -> node that writes it, from its slot or copy."""
    since: int = 0
    """Slots that were sealed in earlier attempts don't count: the job went back behind them."""

    def at(self, step: int) -> CheckpointOrder:
        """The same of another step: gradients waited at the one that was armed, so that the ranks
        saved at the next boundary."""
        folder = self.path.removesuffix(checkpoint_name(self.step, self.identifier))
        path = folder + checkpoint_name(step, self.identifier) if folder != self.path else self.path
        return replace(self, step=step, path=path)

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
        """Its attempt or the loop ended before all had copied: nothing is wrong with saving."""
        return self.state == "void" and self.reason in (ATTEMPT_ENDED, LOOP_ENDED)

    @property
    def trouble(self) -> str:
        """What people hear of one that failed; empty: nothing is wrong with saving."""
        if self.state != "void" or self.came_too_late or self.is_overtaken:
            return ""
        return f"the checkpoint of step {self.step} came to nothing: {self.reason}"


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
    step: int = -1
    """The boundary at which its ranks saved or copied; -1: they have not, or as it was ordered."""


@dataclass(frozen=True)
class FileFact:
    """Size in bytes and SHA-256 in hex."""

    size: int
    sha256: str


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
class CheckpointTally:
    """Coordinated checkpoints of one run of the job that ended, whoever led."""

    ended: dict[str, int] = field(default_factory=dict)
    """`outcome trigger` -> orders."""
    measured: int = 0
    """Complete ones whose cost is known."""
    blocked_s: float = 0.0
    """What those kept the loops, in all."""
    write_s: float = 0.0
    """What writing and hashing them took, in all."""
    counted: str = ""
    """The order that was counted last."""
    slow: str = ""
    """The order during which the one was due that was counted last as skipped."""
    run: str = ""
    """Which run it is of; empty: nobody said (yet)."""


def names_in(requested_by: str) -> tuple[str, ...]:
    """The names that stand in this field."""
    return tuple(filter(None, requested_by.split(",")))


# Snapshots in memory: how often they are taken, what a node has of them, who copies whose.


@dataclass(frozen=True)
class SnapshotOrder:
    """How often ranks take snapshots. `every_steps` 0: not at all, for `reason`."""

    attempt: int
    epoch: int
    every_steps: int
    reason: str = ""


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
    copied_step: int = -1
    """The boundary at which they copied it: behind the armed one where gradients waited there."""
    pulled: str = ""
    """Identifier of the PeerOrder whose copies this node has pulled, whole and checked."""
    peer_address: str = ""
    """host:port where other nodes fetch this one's snapshots; empty: nowhere."""
    failure_domain: str = ""


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


# Traces of chosen steps: what is ordered, and what a rank's trace came to.

DONE = frozenset({"saved", "failed", "void", "missed"})
"""States of a rank from which nothing more will come."""


@dataclass(frozen=True)
class OperatorTime:
    """What one operator took in a traced step, without what it called; a mean over the steps."""

    name: str
    self_us: float
    calls: float


@dataclass(frozen=True)
class TracedRank:
    """How far a rank is with a trace, and what it came to."""

    rank: int
    state: str = "none"
    """page.ReplyState name, lower case."""
    host: str = ""
    path: str = ""
    """Where its trace lies, on this host; empty while it does not."""
    size_bytes: int = 0
    kept_s: float = 0.0
    """So long its loop stood for it."""
    parts_us: dict[str, int] = field(default_factory=dict)
    """Part of a step -> microseconds, the mean of the traced steps."""
    operators: list[OperatorTime] = field(default_factory=list)
    """The dearest ones; only of ranks that are compared."""
    error: str = ""
    """Why there is no trace, or why its operators are not summed up."""
    is_summed_up: bool = False
    """Nothing more is to be learnt of its operators."""


@dataclass(frozen=True)
class TracedPart:
    """This node's part of a trace."""

    identifier: str
    ranks: list[TracedRank] = field(default_factory=list)


@dataclass(frozen=True)
class TraceOrder:
    """Ranks that shall trace the same steps. state: `armed`, `taken`, `void`."""

    identifier: str
    attempt: int
    epoch: int
    step: int
    """So many steps are complete when it begins."""
    steps: int
    state: str
    deadline_s: float
    """Time from arming until it is void, or what there is must do, seconds."""
    request: str
    """Whom it answers."""
    ranks: list[int] = field(default_factory=list)
    compared: list[int] = field(default_factory=list)
    """Those of them that are set side by side: the slow one first."""
    why: str = ""
    """Why these."""
    reason: str = ""
    """Why it is void."""
    tries: int = 0
    """Orders for the same request that came too late, before this one."""
    taken: list[TracedRank] = field(default_factory=list)
    """What it came to."""
