"""One GPU that could be opened: everything that is asked of it, and what it comes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast_sidecar.nvml.asking import Asking
from holdfast_sidecar.nvml.gpm import Activity
from holdfast_sidecar.nvml.identity import Identity, Modes, read_modes
from holdfast_sidecar.nvml.refusals import GpuLostError
from holdfast_sidecar.nvml.users import Users
from holdfast_sidecar.readings.gpu import Gpu, Signal

MODES_S = 10.0
"""Somebody sets them by hand."""


@dataclass
class Watched:
    """Keeps what is not asked each time, and forgets all of it when the GPU is lost."""

    nvml: Any
    handle: Any
    identity: Identity
    asking: Asking
    activity: Activity
    users: Users
    modes: Modes = field(default_factory=Modes)
    _modes_due_s: float = float("-inf")

    def read(self, now_s: float) -> Gpu:
        """What it says now. DriverGoneError passes through."""
        try:
            self._ask(now_s)
        except GpuLostError as why:
            self._forget()
            return gone(self.identity, str(why))
        return self._told()

    def close(self) -> None:
        """Give back what the driver holds for us."""
        self.activity.close()

    def _ask(self, now_s: float) -> None:
        self.asking.ask(now_s)
        self.activity.ask(now_s)
        self.users.ask(now_s)
        if now_s >= self._modes_due_s:
            self.modes = read_modes(self.nvml, self.handle)
            self._modes_due_s = now_s + MODES_S

    def _forget(self) -> None:
        self.asking.begin_again()
        self.activity.begin_again()
        self.users.begin_again()
        self._modes_due_s = float("-inf")

    def _told(self) -> Gpu:
        one, modes = self.identity, self.modes
        users = self.users.told
        values = {**self.asking.values, **self.activity.values}
        if users is not None:
            values[Signal.PROCESSES] = len(users)
        return Gpu(
            index=one.index,
            uuid=one.uuid,
            model=one.model,
            pci=one.pci,
            values=values,
            refused=self._refused(),
            users=users,
            is_mig=modes.is_mig,
            mig_uuids=modes.mig_uuids,
            is_ecc_on=modes.is_ecc_on,
            is_persistent=modes.is_persistent,
        )

    def _refused(self) -> Mapping[str, str]:
        refused = {**self.asking.refused, **self.activity.refused}
        if self.users.refusal:
            refused[Signal.PROCESSES.value] = self.users.refusal
        return refused


def gone(identity: Identity, why: str) -> Gpu:
    """A GPU that does not answer."""
    return Gpu(identity.index, identity.uuid, identity.model, identity.pci, lost=why)
