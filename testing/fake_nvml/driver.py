"""Drives the fake driver: what its GPUs say, and how its calls behave."""

from __future__ import annotations

import ctypes
import mmap
import platform
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.contract.environment import FAKE_NVML
from holdfast_sidecar.components.gpu.readings import GpuUser, Signal
from testing.fake_nvml import layout
from testing.fake_nvml.layout import HOPPER, Profile

# Compiles the fake library. Needs a C compiler, so only tests and demonstrations use it.

SOURCE = Path(__file__).with_name("fake_nvml.c")
LIBRARY = "libnvidia-ml.so.1"
"""The name by which nvidia-ml-py asks the dynamic loader for it."""
STATE_VARIABLE = FAKE_NVML
"""Environment variable that names the library's state file; spelled in fake_nvml.c too."""


class CompilerMissingError(Exception):
    """There is no `cc` on this machine."""


class CompilationFailedError(Exception):
    """The compiler refused the source: it says why."""


def build(directory: Path, without: Iterable[str] = ()) -> Path:
    """Compile into the directory, which then goes to the front of LD_LIBRARY_PATH.

    `without` names functions that the library shall not have, as an older driver's has not.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        raise CompilerMissingError("no C compiler: cc is not installed")
    directory.mkdir(parents=True, exist_ok=True)
    library = directory / LIBRARY
    with tempfile.TemporaryDirectory(prefix="holdfast-nvml-") as made:
        Path(made, "layout.h").write_text(layout.header())
        script = Path(made, "exports")
        script.write_text(f"{{ global: *; {_local(without)} }};\n")
        command = [compiler, "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-I", made]
        command += [f"-Wl,-soname,{LIBRARY}", f"-Wl,--version-script={script}"]
        command += ["-o", str(library), str(SOURCE)]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise CompilationFailedError(f"cc refused {SOURCE.name}: {done.stderr[-2000:]}")
    return library


def _local(names: Iterable[str]) -> str:
    listed = " ".join(f"{name};" for name in names)
    return f"local: {listed}" if listed else ""


def environment(library: Path, state: Path) -> dict[str, str]:
    """What a process needs in its environment to see the fake GPUs."""
    return {"LD_LIBRARY_PATH": str(library.parent), STATE_VARIABLE: str(state)}


# Where each signal lies in the fake driver, in NVML's own units.
#
# Written from NVML's documentation and not from what Holdfast asks, so that a wrong unit there
# shows. A signal may lie in several places: a field, and the older call that tells the same.

ALL_LINKS = -1
"""The sum over a GPU's NVLinks, that the driver keeps itself."""


@dataclass(frozen=True)
class Number:
    """Told by a call of its own. The driver's number is ours times `per_unit`."""

    name: str
    per_unit: float = 1


@dataclass(frozen=True)
class Field:
    """Told by nvmlDeviceGetFieldValues. `link` ALL_LINKS or one of them."""

    id: int
    per_unit: float = 1
    link: int = 0


@dataclass(frozen=True)
class Metric:
    """Told by GPM."""

    id: int
    per_unit: float = 1


Place = Number | Field | Metric

PERCENT = 100
MILLI = 1000
NANO = 1e9
PER_MEGA = 1e-6
PER_KIBI = 1 / 1024

PLACES: Mapping[Signal, tuple[Place, ...]] = {
    Signal.BUSY: (Number("busy_percent", PERCENT),),
    Signal.SM_ACTIVE: (Metric(2, PERCENT),),
    Signal.SM_OCCUPANCY: (Metric(3, PERCENT),),
    Signal.TENSOR_ACTIVE: (Metric(5, PERCENT),),
    Signal.DRAM_ACTIVE: (Metric(10, PERCENT),),
    Signal.FP64_ACTIVE: (Metric(11, PERCENT),),
    Signal.FP32_ACTIVE: (Metric(12, PERCENT),),
    Signal.FP16_ACTIVE: (Metric(13, PERCENT),),
    Signal.MEMORY_SIZE: (Number("memory_total"),),
    Signal.MEMORY_USED: (Number("memory_used"),),
    Signal.MEMORY_RESERVED: (Number("memory_reserved"),),
    Signal.SM_CLOCK: (Number("sm_clock", PER_MEGA), Number("graphics_clock", PER_MEGA)),
    Signal.SM_CLOCK_MOST: (
        Number("sm_clock_most", PER_MEGA),
        Number("graphics_clock_most", PER_MEGA),
    ),
    Signal.MEMORY_CLOCK: (Number("memory_clock", PER_MEGA),),
    Signal.PERFORMANCE_STATE: (Number("performance_state"),),
    Signal.POWER: (Field(186, MILLI), Field(185, MILLI), Number("power_milliwatts", MILLI)),
    Signal.POWER_LIMIT: (Field(190, MILLI), Number("power_limit_milliwatts", MILLI)),
    Signal.ENERGY: (Field(83, MILLI), Field(191, MILLI), Number("energy_millijoules", MILLI)),
    Signal.TEMPERATURE: (Number("temperature"),),
    Signal.MEMORY_TEMPERATURE: (Field(82),),
    Signal.TEMPERATURE_MARGIN: (Number("temperature_margin"),),
    Signal.RECOVERY_ACTION: (Field(230),),
    Signal.ECC_CORRECTED: (Field(3), Number("ecc_corrected_volatile")),
    Signal.ECC_UNCORRECTED: (Field(4), Number("ecc_uncorrected_volatile")),
    Signal.ECC_CORRECTED_EVER: (Field(5), Number("ecc_corrected_aggregate")),
    Signal.ECC_UNCORRECTED_EVER: (Field(6), Number("ecc_uncorrected_aggregate")),
    Signal.SRAM_THRESHOLD_EXCEEDED: (Number("sram_threshold_exceeded"),),
    Signal.REMAPPED_CORRECTABLE: (Field(142), Number("remapped_correctable")),
    Signal.REMAPPED_UNCORRECTABLE: (Field(143), Number("remapped_uncorrectable")),
    Signal.REMAP_PENDING: (Field(144), Number("remap_pending")),
    Signal.REMAP_FAILURE: (Field(145), Number("remap_failure")),
    Signal.BANKS_ALL_LEFT: (Number("banks_max"),),
    Signal.BANKS_MANY_LEFT: (Number("banks_high"),),
    Signal.BANKS_SOME_LEFT: (Number("banks_partial"),),
    Signal.BANKS_FEW_LEFT: (Number("banks_low"),),
    Signal.BANKS_NONE_LEFT: (Number("banks_none"),),
    Signal.RETIRED_CORRECTABLE: (Field(29), Number("retired_correctable")),
    Signal.RETIRED_UNCORRECTABLE: (Field(30), Number("retired_uncorrectable")),
    Signal.RETIREMENT_PENDING: (Field(31), Number("retirement_pending")),
    Signal.THROTTLED_POWER: (Field(74, NANO),),
    Signal.THROTTLED_SOFTWARE_THERMAL: (Field(269, NANO),),
    Signal.THROTTLED_HARDWARE_THERMAL: (Field(270, NANO),),
    Signal.THROTTLED_BRAKE: (Field(271, NANO),),
    Signal.THROTTLED_SYNC: (Field(76, NANO),),
    Signal.THROTTLE_REASONS: (Number("event_reasons"),),
    Signal.PCIE_WIDTH: (Number("pcie_width"),),
    Signal.PCIE_WIDTH_MOST: (Number("pcie_width_most"),),
    Signal.PCIE_GENERATION: (Number("pcie_generation"),),
    Signal.PCIE_GENERATION_MOST: (Number("pcie_generation_most"),),
    Signal.PCIE_REPLAYS: (Field(94), Number("pcie_replays")),
    Signal.PCIE_RECOVERIES: (Field(169),),
    Signal.PCIE_CORRECTABLE: (Field(173),),
    Signal.PCIE_NON_FATAL: (Field(179),),
    Signal.PCIE_FATAL: (Field(180),),
    Signal.PCIE_NAKS_RECEIVED: (Field(174),),
    Signal.PCIE_NAKS_SENT: (Field(177),),
    Signal.PCIE_RECEIVER: (Field(175),),
    Signal.PCIE_BAD_TLP: (Field(176),),
    Signal.PCIE_BAD_DLLP: (Field(178),),
    Signal.PCIE_LCRC: (Field(182),),
    Signal.PCIE_LANE: (Field(183),),
    Signal.PCIE_SENT: (Field(197),),
    Signal.PCIE_RECEIVED: (Field(198),),
    Signal.NVLINKS_EXPECTED: (Field(91),),
    Signal.NVLINK_SPEED: (Field(164, PER_MEGA),),
    Signal.NVLINK_SENT: (Field(138, PER_KIBI, ALL_LINKS),),
    Signal.NVLINK_RECEIVED: (Field(139, PER_KIBI, ALL_LINKS),),
    Signal.NVLINK_REPLAYS: (Field(161),),
    Signal.NVLINK_RECOVERIES: (Field(162),),
    Signal.NVLINK_CRC: (Field(163),),
    Signal.NVLINK_RECOVERY_FAILED: (Field(214),),
    Signal.NVLINK_SYMBOLS: (Field(221),),
    Signal.NVLINK_EFFECTIVE: (Field(219),),
    Signal.NVLINK_RECEIVING: (Field(208),),
    Signal.C2C_LINKS: (Field(170),),
    Signal.C2C_ERRORS: (Field(231),),
    Signal.C2C_REPLAYS: (Field(232),),
    Signal.FABRIC_STATE: (Number("fabric_state"),),
}
"""Signals of all NVLinks that are not here by a sum are told link by link: this sets link 0."""

XID_EVENT = 0x8
"""nvmlEventTypeXidCriticalError."""

NOT_SUPPORTED = 3
NO_PERMISSION = 4
DRIVER_NOT_LOADED = 9
GPU_IS_LOST = 15
RESET_REQUIRED = 16
VERSION_MISMATCH = 18
UNKNOWN = 999

SIGNED = 4
UNSIGNED = 3
DOUBLE = 0

_FUTEX_NUMBER = {"x86_64": 202, "aarch64": 98}
_FUTEX_WAKE = 1


class FakeNvml:
    """One fake driver, by its state file. Every process that maps the file sees each change."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), ctypes.sizeof(layout.State))
        self.state = layout.State.from_buffer(self._map)

    @classmethod
    def create(cls, path: Path, gpus: int = 8, profile: Profile = HOPPER) -> FakeNvml:
        """A new state file with healthy GPUs."""
        with path.open("wb") as file:
            file.truncate(ctypes.sizeof(layout.State))
        fake = cls(path)
        fake.state.driver = profile.driver.encode()
        for index in range(gpus):
            fake._furnish(index, profile)
        fake.state.gpu_count = gpus
        return fake

    # What the GPUs say

    def set(self, gpu: int, what: Signal | int | str, value: float, link: int = 0) -> None:
        """One value: a Signal in base units, a field id, or a name of layout.NUMBERS as told."""
        if isinstance(what, Signal):
            self._set_signal(gpu, what, value)
        elif isinstance(what, str):
            self.state.gpus[gpu].numbers[layout.NUMBERS.index(what)] = int(value)
        else:
            self._set_field(gpu, what, value, link)
        self._tell()

    def add(self, gpu: int, what: Signal, amount: float) -> None:
        """Let a counter grow, in base units."""
        self.set(gpu, what, self.get(gpu, what) + amount)

    def get(self, gpu: int, what: Signal) -> float:
        """What a signal is set to, in base units."""
        place = PLACES[what][0]
        if isinstance(place, Number):
            number = self.state.gpus[gpu].numbers[layout.NUMBERS.index(place.name)]
            return float(number / place.per_unit)
        if isinstance(place, Metric):
            return float(self.state.gpus[gpu].metrics[place.id].value / place.per_unit)
        return float(_value(self._cell(gpu, place.id, place.link)) / place.per_unit)

    def refuse_field(self, gpu: int, number: int, code: int = NOT_SUPPORTED, link: int = 0) -> None:
        """From now on this field has this return code of its own; 0: it is told again."""
        self._cell(gpu, number, link).code = code
        self._tell()

    def refuse_metric(self, gpu: int, number: int, code: int = NOT_SUPPORTED) -> None:
        """The same for one GPM metric."""
        self.state.gpus[gpu].metrics[number].code = code
        self._tell()

    def type_field(self, gpu: int, number: int, value: float, kind: int) -> None:
        """Tell a field as another type (NVML_VALUE_TYPE_...)."""
        self._set_field(gpu, number, value, 0, kind)
        self._tell()

    def users(self, gpu: int, users: Iterable[int | GpuUser]) -> None:
        """The processes that compute on it, by pid."""
        told = [one if isinstance(one, GpuUser) else GpuUser(one, 1 << 30) for one in users]
        at = self.state.gpus[gpu]
        for number, one in enumerate(told):
            memory = (1 << 64) - 1 if one.memory_bytes is None else one.memory_bytes
            at.users[number] = layout.User(one.pid, memory)
        at.user_count = len(told)
        self._tell()

    def mig(self, gpu: int, uuids: Iterable[str]) -> None:
        """Split it into these MIG devices; none: it is whole again."""
        told = list(uuids)
        at = self.state.gpus[gpu]
        for number, uuid in enumerate(told):
            at.mig_uuids[number].value = uuid.encode()
        at.mig_count = len(told)
        self.set(gpu, "mig_mode", int(bool(told)))

    # What becomes of them

    def raise_xid(self, gpu: int, xid: int) -> None:
        """Tell an XID to everyone who waits for events."""
        self.raise_event(gpu, XID_EVENT, xid)

    def raise_event(self, gpu: int, kind: int, data: int = 0) -> None:
        """Tell an event of this type (nvmlEventType...)."""
        number = self.state.events_sent % layout.MOST_EVENTS
        self.state.events[number] = layout.Event(kind, data, gpu, 0)
        self.state.events_sent += 1
        self._tell()

    def lose(self, gpu: int, code: int = GPU_IS_LOST) -> None:
        """Every call about it returns this from now on; 0: it is back."""
        self.state.gpus[gpu].lost_code = code
        self._tell()

    def remove(self, gpu: int) -> None:
        """The driver lists it no more; those after it move up by one."""
        for index in range(gpu, self.state.gpu_count - 1):
            here, after = (ctypes.addressof(self.state.gpus[at]) for at in (index, index + 1))
            ctypes.memmove(here, after, ctypes.sizeof(layout.GpuState))
        self.state.gpu_count -= 1
        self.void_handles()

    # How the calls behave

    def fail(self, call: str, code: int, gpu: int | None = None) -> None:
        """A call returns this code, for one GPU or for all; 0: it works again."""
        if gpu is None:
            self._call(call).code = code
        else:
            self.state.gpus[gpu].codes[layout.CALLS.index(call)] = code
        self._tell()

    def hang(self, call: str, gpu: int | None = None) -> None:
        """A call does not come back, for one GPU or for all, until `release`."""
        self._call(call).hanging |= (1 << 32) - 1 if gpu is None else 1 << gpu
        self._tell()

    def hang_all(self) -> None:
        """The whole driver is wedged."""
        for call in layout.CALLS:
            self._call(call).hanging = (1 << 32) - 1
        self._tell()

    def release(self) -> None:
        """Every call that hangs comes back."""
        for call in layout.CALLS:
            self._call(call).hanging = 0
        self._tell()

    def delay(self, call: str, seconds: float) -> None:
        """A call takes this long."""
        self._call(call).delay_us = round(seconds * 1e6)
        self._tell()

    def asked(self, call: str) -> int:
        """How often a call was made, by all processes."""
        return int(self._call(call).asked)

    def later(self, seconds: float) -> None:
        """Let time pass for the driver: between two GPM samples."""
        self.state.later_ms += round(seconds * 1000)

    # The driver as a whole

    def unload(self, code: int = DRIVER_NOT_LOADED) -> None:
        """No call works any more, nvmlInit neither."""
        self.state.driver_code = code
        self._tell()

    def load(self, driver: str = "") -> None:
        """Load it anew: who had initialised it must do so again, and every handle is void."""
        self.state.driver = driver.encode() or self.state.driver
        self.state.loads += 1
        self.state.handles += 1
        self.state.driver_code = 0
        self._tell()

    def void_handles(self) -> None:
        """Every handle that was given out is an invalid argument from now on."""
        self.state.handles += 1
        self._tell()

    def close(self) -> None:
        """Give the file back; the object can't be used after it."""
        del self.state
        self._map.close()

    def _furnish(self, index: int, profile: Profile) -> None:
        gpu = self.state.gpus[index]
        gpu.uuid = f"GPU-{index:08x}-1111-2222-3333-444444444444".encode()
        gpu.name = profile.model.encode()
        gpu.serial = f"165{index:010d}".encode()
        gpu.bus = 0x17 + 8 * index
        for name, number in profile.numbers.items():
            gpu.numbers[layout.NUMBERS.index(name)] = number
        for field, value in profile.fields.items():
            self._set_field(index, field, value, 0)
        for link in range(profile.links):
            for field, value in profile.link_fields.items():
                self._set_field(index, field, value, link)
        for field, value in profile.all_links_fields.items():
            self._set_field(index, field, value, ALL_LINKS)
        for metric, value in profile.metrics.items():
            gpu.metrics[metric] = layout.MetricCell(value, 1, 0)

    def _set_signal(self, gpu: int, signal: Signal, value: float) -> None:
        for place in PLACES[signal]:
            told = value * place.per_unit
            if isinstance(place, Number):
                self.state.gpus[gpu].numbers[layout.NUMBERS.index(place.name)] = round(told)
            elif isinstance(place, Metric):
                self.state.gpus[gpu].metrics[place.id] = layout.MetricCell(told, 1, 0)
            elif self._cell(gpu, place.id, place.link).is_there or place is PLACES[signal][0]:
                self._set_field(gpu, place.id, round(told), place.link)

    def _set_field(
        self, gpu: int, number: int, value: float, link: int, kind: int | None = None
    ) -> None:
        if kind is None:
            kind = SIGNED if value < 0 else UNSIGNED
        cell = self._cell(gpu, number, link)
        form = {DOUBLE: "<d", SIGNED: "<q", UNSIGNED: "<Q"}.get(kind, "<q")
        told = value if kind == DOUBLE else int(value)
        (cell.bits,) = struct.unpack("<Q", struct.pack(form, told))
        cell.type = kind
        cell.is_there = 1

    def _cell(self, gpu: int, number: int, link: int) -> layout.FieldCell:
        cell = self.state.gpus[gpu].fields[link % layout.MOST_LINKS][number]
        assert isinstance(cell, layout.FieldCell)
        return cell

    def _call(self, name: str) -> layout.CallState:
        call = self.state.calls[layout.CALLS.index(name)]
        assert isinstance(call, layout.CallState)
        return call

    def _tell(self) -> None:
        """Wake whoever waits for a change: events, and calls that hang."""
        self.state.changed = (self.state.changed + 1) % (1 << 32)
        number = _FUTEX_NUMBER.get(platform.machine())
        if number is not None:
            at = ctypes.c_void_p(ctypes.addressof(self.state))
            ctypes.CDLL(None).syscall(number, at, _FUTEX_WAKE, ctypes.c_int(1 << 30))


def _value(cell: layout.FieldCell) -> float:
    raw = struct.pack("<Q", cell.bits)
    form = {DOUBLE: "<d", SIGNED: "<q"}.get(cell.type, "<Q")
    return float(struct.unpack(form, raw)[0])
