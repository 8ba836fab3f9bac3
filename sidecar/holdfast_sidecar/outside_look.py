"""Ranks without hooks, as they are seen from outside: plain data, followed from look to look.

Times are seconds of CLOCK_MONOTONIC. Nothing here reads or decides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

STILL_TICKS_PER_S = 1.0
"""CPU time that a rank at rest may use per second, in clock ticks (1 %), as with hooks."""

STILL_BYTES_PER_S = 4096.0
"""What a rank at rest may read and write: a log line, a tracker's heartbeat."""


IDLE_GPU_RATIO, BUSY_GPU_RATIO = 0.05, 0.95
"""A GPU that waits in NCCL spins and counts as busy all the time; one without work rests."""


@dataclass(frozen=True)
class OutsideRank:
    """A process that is taken for a rank."""

    rank: int
    local_rank: int
    pid: int
    start_ticks: int


@dataclass(frozen=True)
class OutsideLook:
    """One look at one rank's process."""

    who: OutsideRank
    at_s: float
    is_gone: bool = False
    state: str = ""
    cpu_ticks: int = 0
    io_bytes: int = 0
    """Read and written so far, by whatever means."""
    unread_bytes: int = 0
    """In its TCP sockets: what peers sent and it has not read."""
    waits_in: str = ""
    """The kernel function in which its main thread sleeps; empty when that can't be seen."""
    gpu_ratio: float | None = None
    """How busy the busiest GPU is that it computes on; None: none, or not told."""


@dataclass(frozen=True)
class OutsideHistory:
    """What is remembered of a rank."""

    look: OutsideLook
    still_since: OutsideLook
    """The look since which it used hardly any CPU time and moved hardly any data."""
    stopped_since_s: float | None = None
    gone_since_s: float | None = None
    unread_since_s: float | None = None
    gpu_idle_since_s: float | None = None
    gpu_busy_since_s: float | None = None

    @property
    def still_s(self) -> float:
        """For how long it has been seen at rest."""
        return self.look.at_s - self.still_since.at_s


def follow_outside(before: OutsideHistory | None, look: OutsideLook) -> OutsideHistory:
    """The history after one more look."""
    if before is None or before.look.who != look.who:
        before = OutsideHistory(look, look)
    return replace(
        before,
        look=look,
        still_since=before.still_since if _is_at_rest(before.still_since, look) else look,
        stopped_since_s=_since(before.stopped_since_s, look.state == "T", look.at_s),
        gone_since_s=_since(before.gone_since_s, look.is_gone, look.at_s),
        unread_since_s=_since(before.unread_since_s, look.unread_bytes > 0, look.at_s),
        gpu_idle_since_s=_since(
            before.gpu_idle_since_s,
            look.gpu_ratio is not None and look.gpu_ratio <= IDLE_GPU_RATIO,
            look.at_s,
        ),
        gpu_busy_since_s=_since(
            before.gpu_busy_since_s,
            look.gpu_ratio is not None and look.gpu_ratio >= BUSY_GPU_RATIO,
            look.at_s,
        ),
    )


def _is_at_rest(anchor: OutsideLook, look: OutsideLook) -> bool:
    passed_s = look.at_s - anchor.at_s
    return (
        look.cpu_ticks - anchor.cpu_ticks <= STILL_TICKS_PER_S * passed_s
        and look.io_bytes - anchor.io_bytes <= STILL_BYTES_PER_S * passed_s
    )


def _since(before: float | None, is_so: bool, at_s: float) -> float | None:
    if not is_so:
        return None
    return at_s if before is None else before
