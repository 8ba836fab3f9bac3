"""What the GPUs say, through the child that reads them: the newest there is, at once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from holdfast_sidecar.config.settings import GpuSettings
from holdfast_sidecar.nvml.child import command
from holdfast_sidecar.nvml.keeper import Keeper
from holdfast_sidecar.nvml.memory import bare, known_by, with_known
from holdfast_sidecar.readings.gpu import Gpu, GpuReading, NvmlSilence


class NvmlFailedError(Exception):
    """NVML answers with an error for the driver as a whole, or its child does not work."""


@dataclass
class GpuProbe:
    """Hands out the newest reading of the child. Never waits."""

    keeper: Keeper
    name: str = "gpu"
    _newest: GpuReading | None = None
    _known: dict[str, Gpu] = field(default_factory=dict)
    """All that were ever seen, by UUID."""

    def read(self, now_s: float) -> GpuReading | None:
        """All GPUs; None before the first answer. Raises NvmlFailedError.

        While the driver does not answer: which GPUs there are, and nothing of how they fare.
        """
        for message in self.keeper.look(now_s):
            if isinstance(message, GpuReading):
                self._known = known_by(message, self._known)
                self._newest = with_known(message, self._known)
        if self._newest is not None and self._newest.stuck != self.keeper.stuck:
            self._newest = replace(self._newest, stuck=self.keeper.stuck)
        if (silence := self.keeper.silence) is not None:
            return stale(self._newest or self._nothing(), silence)
        if self.keeper.trouble:
            self._newest = None
            raise NvmlFailedError(self.keeper.trouble)
        if self.keeper.is_absent:
            self._newest = self._nothing()
        return self._newest

    def close(self) -> None:
        """End the child."""
        self.keeper.close()

    def _nothing(self) -> GpuReading:
        return GpuReading(is_present=False, expected=len(self._known) or None)


@dataclass(frozen=True)
class NoGpus:
    """Of a node on which nobody is to ask."""

    name: str = "gpu"

    def read(self, now_s: float) -> GpuReading:
        """No GPU."""
        return GpuReading(is_present=False)


def stale(reading: GpuReading, silence: NvmlSilence) -> GpuReading:
    """What is left of a reading when the driver answers no more: who is there."""
    gpus = tuple(bare(gpu, gpu.lost) for gpu in reading.gpus)
    return replace(
        reading,
        gpus=gpus,
        stale_since_s=silence.since_s,
        silence=silence,
        stuck=silence.stuck,
    )


def open_gpu_probe(settings: GpuSettings) -> GpuProbe | NoGpus:
    """The probe as it was set; a child is started at the first reading."""
    if not settings.enabled:
        return NoGpus()
    # A reading that takes as long as the time between two is slow, not silent.
    patience_s = max(settings.deadline_s, 2 * settings.every_s)
    child = command("poll", settings.every_s)
    return GpuProbe(Keeper("poll", child, patience_s, leads_session=True))
