"""All GPUs of this machine, read through nvidia-ml-py. Any call may hang: run it in a child."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from holdfast_sidecar.nvml import codes
from holdfast_sidecar.nvml.asking import Asking, DriverGoneError, GpuLostError, code_of
from holdfast_sidecar.nvml.gpm import Activity
from holdfast_sidecar.nvml.identity import (
    Identity,
    Modes,
    read_identity,
    read_link_count,
    read_modes,
)
from holdfast_sidecar.nvml.users import Users
from holdfast_sidecar.readings.gpu import Gpu, GpuReading, Signal

MODES_S = 10.0
"""Somebody sets them by hand."""
ABSENT_S = 60.0
"""How long a machine without a driver is taken for one; a driver may be loaded later."""
FOUND_AGAIN_S = 10.0
"""How often a GPU that could not be opened is tried again."""


class NvmlFailedError(Exception):
    """NVML answered with an error for the driver as a whole."""


class DriverReplacedError(NvmlFailedError):
    """Another driver was loaded than this process has the library of: only a new process helps."""


@dataclass
class Watched:
    """One GPU that could be opened."""

    identity: Identity
    handle: Any
    asking: Asking
    activity: Activity
    users: Users
    modes: Modes = field(default_factory=Modes)
    lost: str = ""
    _modes_due_s: float = float("-inf")

    def read(self, nvml: Any, now_s: float) -> Gpu:
        """What it says now. DriverGoneError passes through."""
        try:
            self._ask(nvml, now_s)
        except GpuLostError as why:
            self._lose(str(why))
        else:
            self.lost = ""
        return self._told()

    def _ask(self, nvml: Any, now_s: float) -> None:
        self.asking.ask(now_s)
        self.activity.ask(now_s)
        self.users.ask(now_s)
        if now_s >= self._modes_due_s:
            self.modes = read_modes(nvml, self.handle)
            self._modes_due_s = now_s + MODES_S

    def _lose(self, why: str) -> None:
        self.lost = why
        self.asking.begin_again()
        self.activity.begin_again()
        self.users.begin_again()
        self._modes_due_s = float("-inf")

    def _told(self) -> Gpu:
        one = self.identity
        if self.lost:
            return gone(one, self.lost)
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
            is_mig=self.modes.is_mig,
            mig_uuids=self.modes.mig_uuids,
            is_ecc_on=self.modes.is_ecc_on,
            is_persistent=self.modes.is_persistent,
        )

    def _refused(self) -> Mapping[str, str]:
        refused = {**self.asking.refused, **self.activity.refused}
        if self.users.refusal:
            refused[Signal.PROCESSES.value] = self.users.refusal
        return refused


@dataclass
class Devices:
    """Every GPU that the driver lists, and those that it listed once."""

    nvml: Any
    """The module nvidia-ml-py (pynvml)."""
    expected: int | None = None
    """How many there should be, at least; the most that were ever seen, when that is more."""
    driver: str = ""
    _watched: list[Watched] = field(default_factory=list)
    _unopened: list[Gpu] = field(default_factory=list)
    _known: dict[str, Identity] = field(default_factory=dict)
    _is_begun: bool = False
    _listed: int = 0
    _begin_due_s: float = float("-inf")
    _open_due_s: float = float("-inf")

    def read(self, now_s: float) -> GpuReading:
        """All GPUs; `is_present` False where there is no library or no driver.

        Raises NvmlFailedError when the driver as a whole does not answer; the next reading begins
        again.
        """
        if not self._is_begun and not self._begin(now_s):
            return GpuReading(is_present=False, expected=self.expected, read_at_s=now_s)
        try:
            return self._read(now_s)
        except DriverGoneError:
            # A reload or a reset of all GPUs makes every handle void: once more, from the start.
            self.close()
        try:
            self._begin(now_s)
            return self._read(now_s)
        except DriverGoneError as error:
            self.close()
            raise _failed(error.code, str(error)) from error

    def close(self) -> None:
        """Give everything back; the next reading begins again."""
        for one in self._watched:
            one.activity.close()
        self._watched = []
        if self._is_begun:
            self._is_begun = False
            # There is nothing to shut down where the driver is gone already.
            with suppress(self.nvml.NVMLError):
                self.nvml.nvmlShutdown()

    def _begin(self, now_s: float) -> bool:
        """Whether there is a driver."""
        if now_s < self._begin_due_s:
            return False
        nvml = self.nvml
        try:
            nvml.nvmlInit()
            self._is_begun = True
            self.driver = _text(nvml.nvmlSystemGetDriverVersion())
        except nvml.NVMLError as error:
            self.close()
            code = int(error.value)
            if code in (codes.LIBRARY_NOT_FOUND, codes.DRIVER_NOT_LOADED) and not self._known:
                self._begin_due_s = now_s + ABSENT_S
                return False
            raise _failed(code, str(error)) from error
        return True

    def _read(self, now_s: float) -> GpuReading:
        nvml = self.nvml
        try:
            listed = int(nvml.nvmlDeviceGetCount())
        except nvml.NVMLError as error:
            code = int(error.value)
            if code in codes.DRIVER_GONE:
                raise DriverGoneError(code, str(error)) from error
            self.close()
            raise _failed(code, str(error)) from error
        if listed != self._listed or not self._watched or self._is_time_to_open(now_s):
            self._open(listed, now_s)
        gpus = [*(one.read(nvml, now_s) for one in self._watched), *self._unopened]
        ours = len(gpus)
        gpus += self._vanished(gpus)
        self.expected = max(self.expected or 0, len(self._known), ours)
        return GpuReading(
            is_present=True,
            driver=self.driver,
            gpus=tuple(sorted(gpus, key=lambda gpu: gpu.index)),
            expected=self.expected,
            read_at_s=now_s,
        )

    def _is_time_to_open(self, now_s: float) -> bool:
        return bool(self._unopened) and now_s >= self._open_due_s

    def _open(self, listed: int, now_s: float) -> None:
        """Open every GPU anew."""
        for one in self._watched:
            one.activity.close()
        self._watched, self._unopened = [], []
        self._listed = listed
        self._open_due_s = now_s + FOUND_AGAIN_S
        for index in range(listed):
            try:
                self._watched.append(self._opened(index))
            except GpuLostError as why:
                self._unopened.append(self._unknown(index, str(why)))
            except self.nvml.NVMLError as error:
                # Not ours: a container sees all GPUs listed and may open its own only.
                if code_of(self.nvml, error) != codes.NO_PERMISSION:
                    self._unopened.append(self._unknown(index, str(error)))
        for watched in self._watched:
            self._known[watched.identity.uuid] = watched.identity

    def _opened(self, index: int) -> Watched:
        nvml = self.nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            identity = read_identity(nvml, index, handle)
        except nvml.NVMLError as error:
            code_of(nvml, error)
            raise
        asking = Asking(nvml, handle, read_link_count(nvml, handle))
        return Watched(identity, handle, asking, Activity(nvml, handle), Users(nvml, handle))

    def _unknown(self, index: int, why: str) -> Gpu:
        """A GPU that can't be opened: the one that was there, where it is known."""
        opened = {one.identity.uuid for one in self._watched}
        for known in self._known.values():
            if known.index == index and known.uuid not in opened:
                return gone(known, why)
        return gone(Identity(index, "", "", ""), why)

    def _vanished(self, gpus: list[Gpu]) -> list[Gpu]:
        """Those that the driver listed once and does not any more."""
        there = {gpu.uuid for gpu in gpus}
        why = f"the driver lists {self._listed} GPUs and not this one any more"
        return [gone(known, why) for known in self._known.values() if known.uuid not in there]


def gone(identity: Identity, why: str) -> Gpu:
    """A GPU that does not answer."""
    return Gpu(identity.index, identity.uuid, identity.model, identity.pci, lost=why)


def _failed(code: int, why: str) -> NvmlFailedError:
    return (DriverReplacedError if code == codes.LIBRARY_MISMATCH else NvmlFailedError)(why)


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
