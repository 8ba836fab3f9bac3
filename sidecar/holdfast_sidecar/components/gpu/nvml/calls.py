"""What NVML tells through a call of its own instead of a field: one function per call.

Each returns what one call told, in base units. Whatever NVML refuses it raises.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast_sidecar.components.gpu.readings import Signal

Told = Mapping[Signal, float]

MEGA = 1e6
MILLI = 1e-3
PERCENT = 1e-2

UNKNOWN_PERFORMANCE_STATE = 32
FABRIC_NOT_SUPPORTED = 0
DEGRADED_BANDWIDTH_BITS = 0x3
BANDWIDTH_IS_DEGRADED = 1
UNHEALTHY_SUMMARIES = (2, 3)
"""Unhealthy, and limited capacity."""


@dataclass(frozen=True)
class NvmlCall:
    """A question that NVML answers by a function of its own."""

    function: str
    """Its name in nvidia-ml-py, for people."""
    ask: Callable[[Any, Any], Told]


def utilisation(nvml: Any, handle: Any) -> Told:
    """Share of the last sample (1/6 s to 1 s) in which any kernel ran."""
    return {Signal.BUSY: nvml.nvmlDeviceGetUtilizationRates(handle).gpu * PERCENT}


def memory(nvml: Any, handle: Any) -> Told:
    """Used does not hold what the driver keeps for itself."""
    told = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    return {
        Signal.MEMORY_SIZE: told.total,
        Signal.MEMORY_USED: told.used,
        Signal.MEMORY_RESERVED: told.reserved,
    }


def memory_first_version(nvml: Any, handle: Any) -> Told:
    """Before driver 510. Used holds what the driver keeps for itself."""
    told = nvml.nvmlDeviceGetMemoryInfo(handle)
    return {Signal.MEMORY_SIZE: told.total, Signal.MEMORY_USED: told.used}


def sm_clock(nvml: Any, handle: Any) -> Told:
    """Now."""
    return {Signal.SM_CLOCK: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) * MEGA}


def sm_clock_most(nvml: Any, handle: Any) -> Told:
    """The most that this GPU can do."""
    return {Signal.SM_CLOCK_MOST: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM) * MEGA}


def memory_clock(nvml: Any, handle: Any) -> Told:
    """Now."""
    return {Signal.MEMORY_CLOCK: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM) * MEGA}


def performance_state(nvml: Any, handle: Any) -> Told:
    """0 is fastest, 15 slowest."""
    state = nvml.nvmlDeviceGetPerformanceState(handle)
    return {} if state == UNKNOWN_PERFORMANCE_STATE else {Signal.PERFORMANCE_STATE: state}


def power(nvml: Any, handle: Any) -> Told:
    """Average over a second on Ampere and later, else now."""
    return {Signal.POWER: nvml.nvmlDeviceGetPowerUsage(handle) * MILLI}


def power_limit(nvml: Any, handle: Any) -> Told:
    """The lowest of all limits that apply."""
    return {Signal.POWER_LIMIT: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) * MILLI}


def energy(nvml: Any, handle: Any) -> Told:
    """Since the driver was loaded."""
    return {Signal.ENERGY: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) * MILLI}


def temperature(nvml: Any, handle: Any) -> Told:
    """The GPU's, by the versioned call of the newer drivers."""
    return {Signal.TEMPERATURE: nvml.nvmlDeviceGetTemperatureV(handle, nvml.NVML_TEMPERATURE_GPU)}


def temperature_first_version(nvml: Any, handle: Any) -> Told:
    """The GPU's, by the call that newer drivers deprecate."""
    return {Signal.TEMPERATURE: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)}


def margin(nvml: Any, handle: Any) -> Told:
    """How far it may still heat up before the driver slows it down; below 0 it does."""
    return {Signal.TEMPERATURE_MARGIN: nvml.nvmlDeviceGetMarginTemperature(handle)}


def margin_by_threshold(nvml: Any, handle: Any) -> Told:
    """The same worked out, where the driver does not tell it."""
    slowdown = nvml.nvmlDeviceGetTemperatureThreshold(
        handle, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
    )
    now = nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
    return {Signal.TEMPERATURE_MARGIN: slowdown - now}


def throttle_reasons(nvml: Any, handle: Any) -> Told:
    """A bit mask (nvmlClocksEventReason...)."""
    return {Signal.THROTTLE_REASONS: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)}


def throttle_reasons_first_version(nvml: Any, handle: Any) -> Told:
    """Before driver 535 the call had another name."""
    return {Signal.THROTTLE_REASONS: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)}


def ecc_errors(nvml: Any, handle: Any) -> Told:
    """Since the driver was loaded."""
    corrected, uncorrected = _ecc(nvml, handle, nvml.NVML_VOLATILE_ECC)
    return {Signal.ECC_CORRECTED: corrected, Signal.ECC_UNCORRECTED: uncorrected}


def ecc_errors_ever(nvml: Any, handle: Any) -> Told:
    """In the GPU's life."""
    corrected, uncorrected = _ecc(nvml, handle, nvml.NVML_AGGREGATE_ECC)
    return {Signal.ECC_CORRECTED_EVER: corrected, Signal.ECC_UNCORRECTED_EVER: uncorrected}


def _ecc(nvml: Any, handle: Any, scope: int) -> tuple[int, int]:
    kinds = (nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED)
    corrected, uncorrected = (
        nvml.nvmlDeviceGetTotalEccErrors(handle, kind, scope) for kind in kinds
    )
    return corrected, uncorrected


def sram_status(nvml: Any, handle: Any) -> Told:
    """Whether the SRAM had more errors than NVIDIA lets pass without a diagnosis. Needs root."""
    told = nvml.c_nvmlEccSramErrorStatus_v1_t()
    nvml.nvmlDeviceGetSramEccErrorStatus(handle, ctypes.byref(told))
    return {Signal.SRAM_THRESHOLD_EXCEEDED: told.bThresholdExceeded}


def remapped_rows(nvml: Any, handle: Any) -> Told:
    """Rows of HBM that spare ones replaced; Ampere and later."""
    correctable, uncorrectable, pending, failure = nvml.nvmlDeviceGetRemappedRows(handle)
    return {
        Signal.REMAPPED_CORRECTABLE: correctable,
        Signal.REMAPPED_UNCORRECTABLE: uncorrectable,
        Signal.REMAP_PENDING: pending,
        Signal.REMAP_FAILURE: failure,
    }


def row_remap_banks(nvml: Any, handle: Any) -> Told:
    """How many banks have all, many, some, few or no spare rows left."""
    told = nvml.nvmlDeviceGetRowRemapperHistogram(handle)
    return {
        Signal.BANKS_ALL_LEFT: told.max,
        Signal.BANKS_MANY_LEFT: told.high,
        Signal.BANKS_SOME_LEFT: told.partial,
        Signal.BANKS_FEW_LEFT: told.low,
        Signal.BANKS_NONE_LEFT: told.none,
    }


def pcie_link(nvml: Any, handle: Any) -> Told:
    """Now: an idle GPU may have slowed its link down to save power."""
    return {
        Signal.PCIE_WIDTH: nvml.nvmlDeviceGetCurrPcieLinkWidth(handle),
        Signal.PCIE_GENERATION: nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle),
    }


def pcie_link_most(nvml: Any, handle: Any) -> Told:
    """What GPU and slot can do together."""
    return {
        Signal.PCIE_WIDTH_MOST: nvml.nvmlDeviceGetMaxPcieLinkWidth(handle),
        Signal.PCIE_GENERATION_MOST: nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle),
    }


def pcie_replays(nvml: Any, handle: Any) -> Told:
    """Since the driver was loaded."""
    return {Signal.PCIE_REPLAYS: nvml.nvmlDeviceGetPcieReplayCounter(handle)}


def fabric(nvml: Any, handle: Any) -> Told:
    """How far it has joined the NVSwitch fabric, and whether that is at full strength."""
    told = nvml.c_nvmlGpuFabricInfo_v3_t()
    nvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(told))
    return _fabric(told, told.healthSummary)


def fabric_second_version(nvml: Any, handle: Any) -> Told:
    """Before driver 570 there is no summary."""
    told = nvml.c_nvmlGpuFabricInfo_v2_t()
    nvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(told))
    return _fabric(told, 0)


def _fabric(told: Any, summary: int) -> Told:
    # One byte in NVML's interface, four in nvidia-ml-py's structure: the other three are padding.
    state = told.state & 0xFF
    if state == FABRIC_NOT_SUPPORTED:
        return {}
    bandwidth = told.healthMask & DEGRADED_BANDWIDTH_BITS
    is_degraded = bandwidth == BANDWIDTH_IS_DEGRADED or summary in UNHEALTHY_SUMMARIES
    return {Signal.FABRIC_STATE: state, Signal.FABRIC_DEGRADED: int(is_degraded)}


UTILISATION = NvmlCall("nvmlDeviceGetUtilizationRates", utilisation)
MEMORY = NvmlCall("nvmlDeviceGetMemoryInfo_v2", memory)
MEMORY_FIRST_VERSION = NvmlCall("nvmlDeviceGetMemoryInfo", memory_first_version)
SM_CLOCK = NvmlCall("nvmlDeviceGetClockInfo(SM)", sm_clock)
SM_CLOCK_MOST = NvmlCall("nvmlDeviceGetMaxClockInfo(SM)", sm_clock_most)
MEMORY_CLOCK = NvmlCall("nvmlDeviceGetClockInfo(MEM)", memory_clock)
PERFORMANCE_STATE = NvmlCall("nvmlDeviceGetPerformanceState", performance_state)
POWER = NvmlCall("nvmlDeviceGetPowerUsage", power)
POWER_LIMIT = NvmlCall("nvmlDeviceGetEnforcedPowerLimit", power_limit)
ENERGY = NvmlCall("nvmlDeviceGetTotalEnergyConsumption", energy)
TEMPERATURE = NvmlCall("nvmlDeviceGetTemperatureV", temperature)
TEMPERATURE_FIRST_VERSION = NvmlCall("nvmlDeviceGetTemperature", temperature_first_version)
MARGIN = NvmlCall("nvmlDeviceGetMarginTemperature", margin)
MARGIN_BY_THRESHOLD = NvmlCall("nvmlDeviceGetTemperatureThreshold(SLOWDOWN)", margin_by_threshold)
THROTTLE_REASONS = NvmlCall("nvmlDeviceGetCurrentClocksEventReasons", throttle_reasons)
THROTTLE_REASONS_FIRST_VERSION = NvmlCall(
    "nvmlDeviceGetCurrentClocksThrottleReasons", throttle_reasons_first_version
)
ECC_ERRORS = NvmlCall("nvmlDeviceGetTotalEccErrors(VOLATILE)", ecc_errors)
ECC_ERRORS_EVER = NvmlCall("nvmlDeviceGetTotalEccErrors(AGGREGATE)", ecc_errors_ever)
SRAM_STATUS = NvmlCall("nvmlDeviceGetSramEccErrorStatus", sram_status)
REMAPPED_ROWS = NvmlCall("nvmlDeviceGetRemappedRows", remapped_rows)
ROW_REMAP_BANKS = NvmlCall("nvmlDeviceGetRowRemapperHistogram", row_remap_banks)
PCIE_LINK = NvmlCall("nvmlDeviceGetCurrPcieLink{Width,Generation}", pcie_link)
PCIE_LINK_MOST = NvmlCall("nvmlDeviceGetMaxPcieLink{Width,Generation}", pcie_link_most)
PCIE_REPLAYS = NvmlCall("nvmlDeviceGetPcieReplayCounter", pcie_replays)
FABRIC = NvmlCall("nvmlDeviceGetGpuFabricInfoV(3)", fabric)
FABRIC_SECOND_VERSION = NvmlCall("nvmlDeviceGetGpuFabricInfoV(2)", fabric_second_version)


# What NVML's return codes mean for whoever asks. The numbers are part of its interface.

SUCCESS = 0
UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
LIBRARY_MISMATCH = 18
VERSION_MISMATCH = 25

GARBAGE = -1
"""Ours: the driver said that all is well, and told what can't be."""
UNKNOWN_HERE = -2
"""Ours: the installed nvidia-ml-py has no such function."""

LOST = frozenset({GPU_IS_LOST, RESET_REQUIRED})
"""This GPU answers nothing any more until it is reset; others may go on."""

DRIVER_GONE = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, LIBRARY_MISMATCH})
"""The driver was unloaded or replaced: everything must begin again."""

SETTLED = frozenset(
    {
        INVALID_ARGUMENT,
        NOT_SUPPORTED,
        NO_PERMISSION,
        FUNCTION_NOT_FOUND,
        VERSION_MISMATCH,
        22,  # VGPU_ECC_NOT_SUPPORTED
        26,  # DEPRECATED
        UNKNOWN_HERE,
    }
)
"""Asking again soon would bring the same answer: it changes with the driver, with permissions, or
with the GPU's mode. Anything else (busy, no data yet, unknown error) may pass by itself."""

_OWN = {
    GARBAGE: "told what can't be",
    UNKNOWN_HERE: "not known to the installed nvidia-ml-py",
}


def reason(nvml: Any, code: int) -> str:
    """A return code in words."""
    if code in _OWN:
        return _OWN[code]
    return str(nvml.NVMLError(code))


# What nvidia-ml-py raised, as a return code; or as a loss, where more than one value is lost.

REFUSED_S = 60.0
"""How long a refusal for good is taken for one. It changes with the driver, a reset, a MIG mode or
a permission, none of which comes each second; to ask the some 20 signals that an older GPU refuses
every time would cost as much as all the others."""


class GpuLostError(Exception):
    """This GPU answers nothing any more, and why."""


class DriverGoneError(Exception):
    """The driver was unloaded or replaced, or every handle is void: begin again."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


def code_of(nvml: Any, error: Exception) -> int:
    """The return code behind what nvidia-ml-py raised. Raises as `raise_for` does."""
    code = int(getattr(error, "value", FUNCTION_NOT_FOUND))
    raise_for(nvml, code)
    return code


def raise_for(nvml: Any, code: int) -> None:
    """GpuLostError or DriverGoneError for a code that means the whole GPU or the whole driver."""
    if code in LOST:
        raise GpuLostError(reason(nvml, code))
    if code in DRIVER_GONE:
        raise DriverGoneError(code, reason(nvml, code))


def raise_when_void(nvml: Any, handle: Any) -> None:
    """DriverGoneError when the driver does not know the handle any more."""
    try:
        nvml.nvmlDeviceGetUUID(handle)
    except nvml.NVMLError as error:
        code = code_of(nvml, error)
        if code == INVALID_ARGUMENT:
            raise DriverGoneError(code, "the handles of the GPUs are void") from None
