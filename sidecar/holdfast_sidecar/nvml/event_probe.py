"""What the driver tells by itself, through the child that waits for it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast_sidecar.config.settings import GpuSettings
from holdfast_sidecar.nvml.alarm import Alarm
from holdfast_sidecar.nvml.child import command
from holdfast_sidecar.nvml.event_child import OTHERS, WAIT_MS
from holdfast_sidecar.nvml.keeper import Keeper
from holdfast_sidecar.nvml.probe import NvmlFailedError
from holdfast_sidecar.nvml.wire import Listening, Message
from holdfast_sidecar.readings.gpu_events import UNKNOWN_XID, DriverEvent, GpuEvents
from holdfast_sidecar.xids.event import XidEvent

log = logging.getLogger(__name__)


@dataclass
class GpuEventProbe:
    """Hands out each event once, in the order in which they came. Never waits."""

    keeper: Keeper
    name: str = "gpu_events"
    _listening: Listening | None = None
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
            if isinstance(message, Listening):
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

    def _heed(self, listening: Listening) -> None:
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
    return GpuEventProbe(Keeper("events", command("events", 0), patience_s, Alarm(wake).listen))
