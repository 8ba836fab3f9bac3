"""A checkpoint from order to ledger: what is ordered, a node's part of it, what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from holdfast.page import checkpoint_name

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
