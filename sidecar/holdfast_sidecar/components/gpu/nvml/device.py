"""All GPUs of this machine, read through nvidia-ml-py. Any call may hang: run it in a child."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from holdfast_sidecar.components.gpu.nvml import calls
from holdfast_sidecar.components.gpu.nvml.calls import (
    REFUSED_S,
    DriverGoneError,
    GpuLostError,
    code_of,
)
from holdfast_sidecar.components.gpu.nvml.gpm import Activity, FieldBatch
from holdfast_sidecar.components.gpu.nvml.query import Asking
from holdfast_sidecar.components.gpu.readings import Gpu, GpuReading, GpuUser, Signal

# Who a GPU is, how it is split, and how many NVLinks it has: asked when it is first met.

LINK_COUNT_FIELD = 91
LINK_STATE_FIELD = 165
MOST_LINKS = 18
"""Hopper's and Blackwell's; where the driver does not say how many there are, so many are tried."""
MOST_MIG_DEVICES = 8
"""A GPU splits into seven at most (and the driver's own bound is asked first)."""


@dataclass(frozen=True)
class Identity:
    """One GPU by names that outlive a driver reload, and the order in which the driver has it."""

    index: int
    uuid: str
    model: str
    pci: str


@dataclass(frozen=True)
class Modes:
    """How it is set; None: the driver does not say."""

    is_mig: bool = False
    mig_uuids: tuple[str, ...] = ()
    is_ecc_on: bool | None = None
    is_persistent: bool | None = None


def read_identity(nvml: Any, index: int, handle: Any) -> Identity:
    """Raises what nvidia-ml-py raises when it does not even tell its UUID."""
    return Identity(
        index=index,
        uuid=_identity_text(nvml.nvmlDeviceGetUUID(handle)),
        model=_asked(nvml, lambda: _identity_text(nvml.nvmlDeviceGetName(handle))) or "",
        pci=parse_pci(
            _asked(nvml, lambda: _identity_text(nvml.nvmlDeviceGetPciInfo(handle).busId)) or ""
        ),
    )


def parse_pci(bus_id: str) -> str:
    """NVML's `00000000:17:00.0` as sysfs has it: `0000:17:00.0`, lower case; "" when it is none."""
    domain, _, rest = bus_id.strip().lower().partition(":")
    try:
        return f"{int(domain, 16):04x}:{rest}" if rest else ""
    except ValueError:
        return ""


def read_modes(nvml: Any, handle: Any) -> Modes:
    """How it is set now. Some of it changes while the driver is loaded."""
    mig = _asked(nvml, lambda: int(nvml.nvmlDeviceGetMigMode(handle)[0]))
    ecc = _asked(nvml, lambda: int(nvml.nvmlDeviceGetEccMode(handle)[0]))
    persistence = _asked(nvml, lambda: int(nvml.nvmlDeviceGetPersistenceMode(handle)))
    return Modes(
        is_mig=bool(mig),
        mig_uuids=_mig_uuids(nvml, handle) if mig else (),
        is_ecc_on=None if ecc is None else bool(ecc),
        is_persistent=None if persistence is None else bool(persistence),
    )


def read_link_count(nvml: Any, handle: Any) -> int:
    """How many NVLinks it has, used or not; 0 where it has none or does not say."""
    entries = [(LINK_COUNT_FIELD, 0), *((LINK_STATE_FIELD, link) for link in range(MOST_LINKS))]
    batch = FieldBatch(nvml, entries)
    code, answers = _asked(nvml, lambda: batch.ask(handle)) or (calls.NOT_SUPPORTED, [])
    if code != calls.SUCCESS:
        return 0
    _, count = answers[0]
    if count is not None and 0 < count <= 2 * MOST_LINKS:
        return int(count)
    return sum(value is not None for _, value in answers[1:])


def _mig_uuids(nvml: Any, handle: Any) -> tuple[str, ...]:
    most = _asked(nvml, lambda: int(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)))
    found = []
    for number in range(min(most or MOST_MIG_DEVICES, MOST_MIG_DEVICES)):
        uuid = _asked(
            nvml,
            lambda number=number: _identity_text(  # type: ignore[misc]
                nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number))
            ),
        )
        if uuid is not None:
            found.append(uuid)
    return tuple(found)


def _asked(nvml: Any, question: Callable[[], Any]) -> Any:
    """The answer; None when it is refused. A lost GPU and a driver that is gone pass through."""
    try:
        return question()
    except nvml.NVMLError as error:
        code_of(nvml, error)
    except AttributeError:
        pass  # the installed nvidia-ml-py does not know it
    return None


def _identity_text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


# Which processes compute on a GPU.

EVERY_S = 5.0
"""The driver walks all its clients for it. Ranks start and end seldom."""

FUNCTIONS = (
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetComputeRunningProcesses_v2",
)
"""The second for drivers before 510."""


@dataclass
class Users:
    """One GPU's processes as they were last told; None: the driver does not tell."""

    nvml: Any
    handle: Any
    told: tuple[GpuUser, ...] | None = None
    refusal: str = ""
    _due_s: float = float("-inf")

    def ask(self, now_s: float) -> None:
        """Ask when it is due."""
        if now_s < self._due_s:
            return
        code = calls.FUNCTION_NOT_FOUND
        for name in FUNCTIONS:
            code = self._ask(name)
            if code != calls.FUNCTION_NOT_FOUND:
                break
        is_told = code == calls.SUCCESS
        self._due_s = now_s + (REFUSED_S if code in calls.SETTLED else EVERY_S)
        self.refusal = "" if is_told else f"{name}: {calls.reason(self.nvml, code)}"
        if not is_told:
            self.told = None

    def begin_again(self) -> None:
        """It is due, and nothing is known."""
        self.told, self.refusal, self._due_s = None, "", float("-inf")

    def _ask(self, name: str) -> int:
        function = getattr(self.nvml, name, None)
        if function is None:
            return calls.FUNCTION_NOT_FOUND
        try:
            processes = function(self.handle)
        except self.nvml.NVMLError as error:
            return code_of(self.nvml, error)
        self.told = tuple(
            GpuUser(int(one.pid), None if one.usedGpuMemory is None else int(one.usedGpuMemory))
            for one in processes
        )
        return calls.SUCCESS


# One GPU that could be opened: everything that is asked of it, and what it comes to.

MODES_S = 10.0
"""Somebody sets them by hand."""


@dataclass
class CachedDevice:
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


ABSENT_S = 60.0
"""How long a machine without a driver is taken for one; a driver may be loaded later."""
FOUND_AGAIN_S = 10.0
"""How often a GPU that could not be opened is tried again."""


class NvmlDriverError(Exception):
    """NVML answered with an error for the driver as a whole."""


class DriverReplacedError(NvmlDriverError):
    """Another driver was loaded than this process has the library of: only a new process helps."""


@dataclass
class Devices:
    """Every GPU that the driver lists, and those that it listed once."""

    nvml: Any
    """The module nvidia-ml-py (pynvml)."""
    expected: int | None = None
    """How many there should be, at least; the most that were ever seen, when that is more."""
    driver: str = ""
    _watched: list[CachedDevice] = field(default_factory=list)
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
            one.close()
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
            if code in (calls.LIBRARY_NOT_FOUND, calls.DRIVER_NOT_LOADED) and not self._known:
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
            if code in calls.DRIVER_GONE:
                raise DriverGoneError(code, str(error)) from error
            self.close()
            raise _failed(code, str(error)) from error
        if listed != self._listed or not self._watched or self._is_time_to_open(now_s):
            self._open(listed, now_s)
        gpus = [*(one.read(now_s) for one in self._watched), *self._unopened]
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
            one.close()
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
                if code_of(self.nvml, error) != calls.NO_PERMISSION:
                    self._unopened.append(self._unknown(index, str(error)))
        for watched in self._watched:
            self._known[watched.identity.uuid] = watched.identity

    def _opened(self, index: int) -> CachedDevice:
        nvml = self.nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            identity = read_identity(nvml, index, handle)
        except nvml.NVMLError as error:
            code_of(nvml, error)
            raise
        asking = Asking(nvml, handle, read_link_count(nvml, handle))
        activity, users = Activity(nvml, handle), Users(nvml, handle)
        return CachedDevice(nvml, handle, identity, asking, activity, users)

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


def _failed(code: int, why: str) -> NvmlDriverError:
    return (DriverReplacedError if code == calls.LIBRARY_MISMATCH else NvmlDriverError)(why)


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
