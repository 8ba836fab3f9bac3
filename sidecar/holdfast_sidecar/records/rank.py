"""What a sidecar says of one rank."""

from __future__ import annotations

from dataclasses import dataclass, field

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
