"""Who a GPU is, how it is split, and how many NVLinks it has: asked when it is first met."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast_sidecar.nvml import codes
from holdfast_sidecar.nvml.asking import code_of
from holdfast_sidecar.nvml.fields import FieldBatch

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
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        model=_asked(nvml, lambda: _text(nvml.nvmlDeviceGetName(handle))) or "",
        pci=parse_pci(_asked(nvml, lambda: _text(nvml.nvmlDeviceGetPciInfo(handle).busId)) or ""),
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
    code, answers = _asked(nvml, lambda: batch.ask(handle)) or (codes.NOT_SUPPORTED, [])
    if code != codes.SUCCESS:
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
            lambda number=number: _text(  # type: ignore[misc]
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


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
