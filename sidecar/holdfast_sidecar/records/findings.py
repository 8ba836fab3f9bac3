"""Something judged wrong: kind, who, since when, how sure, on what evidence."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

# What a part in trouble needs before it is used again: five classes, from mild to harsh.


class Remedy(str, Enum):
    """Sorted by `severity`, not by name."""

    NONE = "none"  # it is told and counted
    RESTART_APP = "restart_app"  # ranks start again in place; the node is not blamed
    RESET_GPU = "reset_gpu"  # once no process is on it
    REBOOT_NODE = "reboot_node"
    REPLACE = "replace"  # blamed and kept outside; a spare takes its place

    @property
    def severity(self) -> int:
        """0 for none up to 4 for replace."""
        return _SEVERITY[self]

    @property
    def next(self) -> Remedy:
        """The next harsher one, for when this one did not last."""
        return tuple(Remedy)[min(self.severity + 1, len(Remedy) - 1)]

    @property
    def blames_hardware(self) -> bool:
        """Whether the part itself is at fault, and must not be used before it was mended."""
        return self.severity >= Remedy.RESET_GPU.severity


_SEVERITY = {remedy: severity for severity, remedy in enumerate(Remedy)}


def parse_remedy(word: str) -> Remedy:
    """The remedy of this name; none of an empty one. One that is new to us asks for the most."""
    if not word:
        return Remedy.NONE
    try:
        return Remedy(word)
    except ValueError:
        return Remedy.REPLACE


def harsher(one: Remedy, other: Remedy) -> Remedy:
    """Whichever asks for more."""
    return max(one, other, key=lambda remedy: remedy.severity)


class Kind(str, Enum):
    """What was judged wrong."""

    CRASH = "crash"  # a rank's process is gone
    HANG = "hang"  # no progress, with positive evidence (stopped, or peers wait for it)
    STALL = "stall"  # no progress beyond what the phase's history allows; silence alone
    DATA_STALL = "data_stall"  # the same while waiting for data, by a loader that is at work
    STRAGGLER = "straggler"
    NONFINITE = "nonfinite"  # NaN or Inf in losses or gradients
    SPIKE = "spike"  # losses or gradients far above what is usual
    NODE_LOST = "node_lost"  # told by the leader: nothing is heard of a member any more
    SIDECAR_LOST = "sidecar_lost"  # told by the leader: a member runs on unwatched
    LAUNCHER_LOST = "launcher_lost"  # its process is gone; or, told by the leader, long silent
    MEMORY_PRESSURE = "memory_pressure"
    DISK_FULL = "disk_full"
    HUNG_TASK = "hung_task"  # the kernel waits for something that does not answer
    CPU_THROTTLED = "cpu_throttled"  # the cgroup's CPU quota keeps ranks waiting
    CLOCK_OFF = "clock_off"  # this node's clock is not synchronised, or far from the others'
    HOST_MEMORY_ERRORS = "host_memory_errors"  # DRAM errors that the memory controller counts
    HOST_HOT = "host_hot"  # a part of the host near the temperature at which it slows down
    STORAGE_STALLED = "storage_stalled"  # a network file system that does not answer
    LINK_DOWN = "link_down"  # an interface or an RDMA port that had a link and lost it for good
    LINK_FLAPPING = "link_flapping"  # lost and found again; told, and no fault
    LINK_DEGRADED = "link_degraded"  # slower than it could be, or its errors grow
    PEER_SLOW = "peer_slow"  # round trips between sidecars: the link to this node is slow
    PCI_ERRORS = "pci_errors"  # errors that a PCI device reports (AER)
    GPU_LOST = "gpu_lost"  # it does not answer any more, or fewer are there than should be
    GPU_FAULT = "gpu_fault"  # XID or the driver's recovery action; `remedy` says what it asks for
    GPU_MEMORY_FAILING = "gpu_memory_failing"  # rows to be remapped, or none left to remap to
    ECC_STORM = "ecc_storm"  # corrected errors at a rate that foretells uncorrected ones
    GPU_THROTTLED = "gpu_throttled"  # slowed down by heat, power or a brake
    GPU_LINK_DEGRADED = "gpu_link_degraded"  # PCIe narrower or slower than it could be, NVLink lost
    GPU_SHARED = "gpu_shared"  # a foreign process computes on a rank's GPU, or fills its memory
    NVML_WEDGED = "nvml_wedged"  # the driver does not answer; what it said last is stale
    NODE_UNFIT = "node_unfit"  # the health gate would not let this node into an attempt
    GATE_BLIND = "gate_blind"  # a check of the gate could not be made: the node is let in unchecked
    STORE_AWAY = "store_away"
    NO_SNAPSHOTS = "no_snapshots"  # memory or state don't allow them; `what` says which
    NO_PEER_COPY = "no_peer_copy"  # snapshots don't get onto another node, or too slowly
    NOT_RESTORABLE = "not_restorable"  # state that a resume could not give back, or not as it was
    STORAGE_SLOW = "storage_slow"  # a checkpoint takes longer to write than the interval
    PREEMPTED = "preempted"  # a scheduler wants the node back, or the time limit is near
    PROBE_FAILED = "probe_failed"


HARDWARE = frozenset({Kind.LINK_DOWN, Kind.GPU_LOST, Kind.GPU_FAULT})
"""Kinds by which a node's own parts are at fault, where the remedy is for hardware: what it wrote
meanwhile is not called good."""


@dataclass(frozen=True)
class Finding:
    """One judgement. `since_unix_s` is the node's wall clock; confidence is 0 to 1."""

    kind: Kind
    node: str
    since_unix_s: float
    confidence: float
    ranks: list[int] = field(default_factory=list)
    evidence: list[str] = field(default_factory=list)
    acts: bool = False
    """Sure enough to end a rank for (declaring and acting are separate)."""
    what: str = ""
    """Which one, where a node has several of what is in trouble: room, interface, probe, GPU."""
    gpu: str = ""
    """UUID of the GPU in trouble; empty: it is not about one."""
    remedy: Remedy = Remedy.NONE
    """What the part in trouble needs before it is used again."""
    check: bool = False
    """The part should pass a test before it is used again: it may, or may not, be at fault."""

    gpu_index: int | None = None
    """Its number on the node, by which people know it."""
    to_blame: str = ""
    """Whose doing it is by what the driver told, `gpu`, `switch` or `application`, whatever remedy
    is enough for it; empty: nobody's in particular, or the driver told nothing."""
    rank_confidence: float = 1.0
    """How sure it is that the part is used by `ranks`, 0 to 1: whoever blames one of them is no
    surer."""

    @property
    def named_gpu(self) -> str:
        """`GPU 3`, or with its UUID where its number is not known."""
        return f"GPU {self.gpu if self.gpu_index is None else self.gpu_index}"

    @property
    def key(self) -> tuple[str, str, tuple[int, ...], str]:
        """Same key: the same trouble, seen again."""
        return (self.kind.value, self.node, tuple(self.ranks), self.what)


# The present, as it is handed to what decides.


@dataclass(frozen=True)
class Moment:
    """The present, as the judges are told it."""

    now_s: float
    now_unix_s: float
    node: str
    awake_since_s: float = 0.0
    """Since when this loop has ticked without a gap: while it slept it saw nobody stand still, so
    no silence is counted from before."""

    def age_s(self, since_s: float) -> float:
        """For how long something has lasted under our eyes."""
        return max(0.0, self.now_s - max(since_s, self.awake_since_s))

    def unix_s(self, at_s: float) -> float:
        """A monotonic time as wall clock of this node."""
        return self.now_unix_s - max(0.0, self.now_s - at_s)
