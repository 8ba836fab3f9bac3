"""Keeps what is known of this node's GPUs from tick to tick, and has every fresh reading judged.

A stale reading is not judged, and what was found before it stands: that nothing is seen any more
does not mean that it is over.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from holdfast_sidecar.components.gpu.checks import (
    find_error_storms,
    find_failing_memory,
    find_lost_gpus,
    find_shared_gpus,
    find_wanted_recoveries,
)
from holdfast_sidecar.components.gpu.energy import EnergyAccount, GpuView, Progress, follow_energy
from holdfast_sidecar.components.gpu.history import GpuScene, follow_gpus
from holdfast_sidecar.components.gpu.links import find_degraded_links, find_throttled_gpus
from holdfast_sidecar.components.gpu.ownership import Company, Ownership, owners, tie_up
from holdfast_sidecar.components.gpu.readings import GpuReading, leave_out_garbage
from holdfast_sidecar.ranks.observation import RankHistory
from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.findings import Finding

# Everything that GPUs are judged by, from one fresh reading and what went before.


def judge_states(scene: GpuScene, moment: Moment) -> list[Finding]:
    """What a GPU says of itself now: judged with every reading."""
    return [
        *find_lost_gpus(scene, moment),
        *find_wanted_recoveries(scene, moment),
        *find_failing_memory(scene, moment),
        *find_shared_gpus(scene, moment),
    ]


def judge_rates(scene: GpuScene, moment: Moment) -> list[Finding]:
    """What shows over half a minute and more: judged now and then."""
    return [
        *find_error_storms(scene, moment),
        *find_throttled_gpus(scene, moment),
        *find_degraded_links(scene, moment),
    ]


RATES_EVERY_S = 5.0
"""They are worked out over half a minute and more, and cost four times what the rest does."""

NO_GPUS = GpuReading(is_present=False)


class CompanyReading(Protocol):
    """Who is around the GPUs: `components.gpu.process_probe.CompanyReader`."""

    def read(self, reading: GpuReading) -> Company:
        """Everyone around the GPUs of this reading."""


class Nobody:
    """No ranks, and no process can be seen."""

    def read(self, reading: GpuReading) -> Company:
        """Nobody is there."""
        return Company()


@dataclass
class GpuWatch:
    """One node's. `scene` and `energy` are as of the newest fresh reading."""

    company: CompanyReading = field(default_factory=Nobody)
    scene: GpuScene = field(default_factory=lambda: GpuScene(NO_GPUS))
    energy: EnergyAccount = field(default_factory=EnergyAccount)
    _states: tuple[Finding, ...] = ()
    _rates: tuple[Finding, ...] = ()
    _rates_due_s: float = float("-inf")
    _seen: GpuReading | None = None

    @property
    def ownership(self) -> Ownership:
        """Whose GPUs they are, as far as is known."""
        return self.scene.ownership

    def view(self) -> GpuView:
        """What metrics tell."""
        return GpuView(self.ownership, self.energy)

    def owners(self) -> dict[str, int]:
        """UUID and PCI address of each GPU -> its rank."""
        return owners(self.scene.reading, self.ownership)

    def sureness(self) -> dict[str, float]:
        """UUID of each GPU -> how sure it is whose it is."""
        return {gpu.uuid: self.ownership.sureness(gpu.uuid) for gpu in self.scene.reading.gpus}

    def follow(
        self, reading: GpuReading | None, ranks: Mapping[int, RankHistory], moment: Moment
    ) -> list[Finding]:
        """All findings about GPUs that stand now; a reading is taken in once."""
        if reading is not None and _says_something(reading) and reading is not self._seen:
            self._seen = reading
            self._take_in(_timed(reading, moment), ranks)
            self._judge(moment)
        return [*self._states, *self._rates]

    def _judge(self, moment: Moment) -> None:
        self._states = tuple(judge_states(self.scene, moment))
        if moment.now_s >= self._rates_due_s:
            self._rates = tuple(judge_rates(self.scene, moment))
            self._rates_due_s = moment.now_s + RATES_EVERY_S

    def _take_in(self, reading: GpuReading, ranks: Mapping[int, RankHistory]) -> None:
        reading = leave_out_garbage(reading)
        company = self.company.read(reading)
        self.scene = GpuScene(
            reading,
            follow_gpus(self.scene.history, reading),
            tie_up(reading, company, self.ownership),
            company,
        )
        progress = {rank: _progress(history) for rank, history in ranks.items()}
        self.energy = follow_energy(
            self.energy, reading, self.scene.history, self.ownership, progress
        )


def _says_something(reading: GpuReading) -> bool:
    """Also that there is no driver, where there should be GPUs."""
    return reading.stale_since_s is None and (reading.is_present or bool(reading.expected))


def _timed(reading: GpuReading, moment: Moment) -> GpuReading:
    """One that does not say when it was made is as old as this tick."""
    return reading if reading.read_at_s else dataclasses.replace(reading, read_at_s=moment.now_s)


def _progress(history: RankHistory) -> Progress:
    look = history.look
    return Progress(look.identity.pid, look.identity.start_ticks, look.step, look.tokens)
