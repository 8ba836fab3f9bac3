"""What the GPUs say, through the child that reads them: the newest there is, at once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from holdfast_sidecar.components.gpu.nvml.child_io import OTHERS, WAIT_MS
from holdfast_sidecar.components.gpu.nvml.process import (
    ChildSupervisor,
    ChildWakeup,
    bare,
    command,
    known_by,
    with_known,
)
from holdfast_sidecar.components.gpu.nvml.wire import EventsReady, Message
from holdfast_sidecar.components.gpu.readings import Gpu, GpuReading, NvmlSilence
from holdfast_sidecar.components.xid.events import UNKNOWN_XID, DriverEvent, GpuEvents, XidEvent
from holdfast_sidecar.config.settings import GpuSettings

log = logging.getLogger(__name__)


class NvmlFailedError(Exception):
    """NVML answers with an error for the driver as a whole, or its child does not work."""


@dataclass
class GpuProbe:
    """Hands out the newest reading of the child. Never waits."""

    keeper: ChildSupervisor
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
    return GpuProbe(ChildSupervisor("poll", child, patience_s, leads_session=True))


# What the driver tells by itself, through the child that waits for it.


@dataclass
class GpuEventProbe:
    """Hands out each event once, in the order in which they came. Never waits."""

    keeper: ChildSupervisor
    name: str = "gpu_events"
    _listening: EventsReady | None = None
    _counts: dict[str, int] = field(default_factory=dict)

    def read(self, now_s: float) -> GpuEvents:
        """What came since the look before. Raises NvmlFailedError once that was handed out."""
        messages = self.keeper.look(now_s)
        events = self._sorted(messages)
        if self.keeper.trouble and not (events.xids or events.others):
            raise NvmlFailedError(self.keeper.trouble)
        return events

    def close(self) -> None:
        """End the child."""
        self.keeper.close()

    def _sorted(self, messages: list[Message]) -> GpuEvents:
        for message in messages:
            if isinstance(message, EventsReady):
                self._heed(message)
        keeper = self.keeper
        is_listening = self._listening is not None and keeper.pids and not keeper.silence
        return GpuEvents(
            xids=tuple(message for message in messages if isinstance(message, XidEvent)),
            others=self._counted(messages),
            counts=dict(self._counts),
            listening_to=self._listening.count if self._listening and is_listening else None,
            silence=keeper.silence,
            stuck=keeper.stuck,
        )

    def _counted(self, messages: list[Message]) -> tuple[DriverEvent, ...]:
        others = tuple(message for message in messages if isinstance(message, DriverEvent))
        for event in others:
            if event.name == UNKNOWN_XID and not self._counts.get(UNKNOWN_XID):
                text = "the driver told an XID by the number %d, which can't be one (GPU at %s)"
                log.warning(text + "; more of them are only counted", event.data, event.pci or "?")
            self._counts[event.name] = self._counts.get(event.name, 0) + 1
        return others

    def _heed(self, listening: EventsReady) -> None:
        if listening.trouble:
            count = listening.count
            log.warning("waiting for events of %d GPUs, not all: %s", count, listening.trouble)
        self._counts = dict.fromkeys((*OTHERS.values(), UNKNOWN_XID), 0) | self._counts
        self._listening = listening


@dataclass(frozen=True)
class NoGpuEvents:
    """Of a node on which nobody is to ask."""

    name: str = "gpu_events"

    def read(self, now_s: float) -> GpuEvents:
        """None ever."""
        return GpuEvents()


def open_event_probe(
    settings: GpuSettings, wake: Callable[[], None]
) -> GpuEventProbe | NoGpuEvents:
    """The probe as it was set; `wake` asks for a look the moment something was told."""
    if not settings.enabled:
        return NoGpuEvents()
    patience_s = max(settings.deadline_s, 2 * WAIT_MS / 1000)
    return GpuEventProbe(
        ChildSupervisor("events", command("events", 0), patience_s, ChildWakeup(wake).listen)
    )
