"""Which rank a GPU belongs to, who says so, and how sure that is.

Asked in this order: torch inside the rank (where the parameters lie), the driver's list of
processes, the rank's environment, the rank's local number. What nothing tells is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from holdfast_sidecar.components.gpu.readings import Gpu, GpuReading, Signal

# Which GPUs a process sees, worked out from its environment as CUDA would.

VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
LOCAL_RANK = "LOCAL_RANK"
CHOOSING = (VISIBLE, ORDER, LOCAL_RANK)
"""The variables that choose; no others are read of a rank's environment."""


def visible_gpus(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> tuple[str, ...] | None:
    """UUIDs of the GPUs it sees, in CUDA's order; None where that can't be told.

    As CUDA has it, a list ends before its first entry that names no GPU, and one that names a GPU
    twice shows none at all.
    """
    in_order = _in_cuda_order(gpus, environment.get(ORDER, ""))
    listed = environment.get(VISIBLE)
    if listed is None:
        return None if in_order is None else tuple(gpu.uuid for gpu in in_order)
    found: list[str] = []
    taken: set[str] = set()
    for entry in (part.strip() for part in listed.split(",")):
        if entry.isdecimal() and in_order is None:
            return None
        uuid = _named(entry, gpus, in_order or ())
        if uuid is None:
            break
        if entry in taken:
            return ()
        taken.add(entry)
        found.append(uuid)
    return tuple(found)


def _in_cuda_order(gpus: Sequence[Gpu], order: str) -> list[Gpu] | None:
    """NVML counts by PCI address; CUDA by speed unless told otherwise, which is the same order
    where all are of one model, and can't be known from here where they are not."""
    if order != "PCI_BUS_ID" and len({gpu.model for gpu in gpus}) > 1:
        return None
    return sorted(gpus, key=lambda gpu: (gpu.pci, gpu.index))


def _named(entry: str, gpus: Sequence[Gpu], in_order: Sequence[Gpu]) -> str | None:
    if entry.isdecimal():
        return in_order[int(entry)].uuid if int(entry) < len(in_order) else None
    if entry.startswith("MIG-GPU-"):  # MIG-GPU-<uuid>/<instance>/<instance>, of older drivers
        return _only([g.uuid for g in gpus if g.uuid == entry[len("MIG-") :].partition("/")[0]])
    if entry.startswith("MIG-"):
        return _only([g.uuid for g in gpus if any(m.startswith(entry) for m in g.mig_uuids)])
    if entry.startswith("GPU-"):
        return _only([g.uuid for g in gpus if g.uuid.startswith(entry)])
    return None


def _only(uuids: Sequence[str]) -> str | None:
    """An abbreviation counts only while it fits one GPU."""
    return uuids[0] if len(uuids) == 1 else None


# What is known of processes around GPUs: the ranks' own words, and who a GPU's users are.


@dataclass(frozen=True)
class RankDevice:
    """A GPU as torch names it inside a rank; empty where this torch does not tell."""

    uuid: str = ""
    pci: str = ""


@dataclass(frozen=True)
class Seat:
    """A rank of this node, and what its process says of its GPUs."""

    rank: int
    local_rank: int
    pid: int
    start_ticks: int = 0
    environment: Mapping[str, str] | None = None
    """Those variables that choose GPUs; None: they may not be read."""
    devices: tuple[RankDevice, ...] = ()
    """Where the parameters lie that its optimizer steps; empty: it has not told."""


@dataclass(frozen=True)
class GpuProcess:
    """A process that computes on a GPU."""

    pid: int
    name: str = ""
    start_ticks: int = 0
    ancestors: tuple[int, ...] = ()
    """Pids of its parent, of that one's parent, and so on, as of when it was first seen."""


@dataclass(frozen=True)
class GpuUsers:
    """Everyone around this node's GPUs."""

    seats: tuple[Seat, ...] = ()
    processes: Mapping[int, GpuProcess] = field(default_factory=dict)
    """By pid; one that can't be seen from here is missing."""
    own_pids: frozenset[int] = frozenset()
    """The sidecar and, where it is known, the launcher."""
    sees_all_pids: bool = False
    """Whether pids are counted here as the driver counts them: in the first pid namespace."""

    def slots(self) -> int:
        """How many ranks this node has."""
        return len(self.seats)


def busy_by_pid(reading: GpuReading) -> dict[int, float]:
    """Process -> how busy the busiest GPU is that it computes on."""
    busy: dict[int, float] = {}
    for gpu in reading.gpus:
        ratio = gpu.value(Signal.BUSY)
        if ratio is not None:
            for user in gpu.users or ():
                busy[user.pid] = max(busy.get(user.pid, 0.0), ratio)
    return busy


class OwnershipSource(str, Enum):
    """Who says which GPU a rank has."""

    TORCH = "torch"
    DRIVER = "driver"
    ONE_VISIBLE = "one_visible"
    VISIBLE_LIST = "visible_list"
    LOCAL_RANK = "local_rank"
    BEFORE = "before"


CONFIDENCE = {
    OwnershipSource.TORCH: 1.0,
    OwnershipSource.DRIVER: 1.0,
    OwnershipSource.ONE_VISIBLE: 0.9,
    OwnershipSource.VISIBLE_LIST: 0.7,
    OwnershipSource.LOCAL_RANK: 0.6,
    OwnershipSource.BEFORE: 0.5,
}
"""The first two were seen to be so. A rank that sees one GPU can use no other, unless it changed
its environment after it began. Of several it uses, by custom and no more, its local number's. When
a rank's process is gone, the next one is likely to take the same: until it says something itself,
what is found stays with the same rank."""

CERTAIN = 1.0

STRAY_SHARE = 0.1
"""A rank that has less than a tenth of its memory on a GPU does not work there: loading a file
without `map_location` leaves every rank with a context of some 500 MB on the first GPU."""


@dataclass(frozen=True)
class Tie:
    """A rank and its GPUs, by UUID."""

    rank: int
    local_rank: int
    pid: int
    start_ticks: int
    gpus: tuple[str, ...]
    source: OwnershipSource

    @property
    def confidence(self) -> float:
        """0 to 1."""
        return CONFIDENCE[self.source]


@dataclass(frozen=True)
class GpuOwnership:
    """All ties of this node."""

    ties: Mapping[int, Tie] = field(default_factory=dict)
    """By rank; a rank of which nothing tells is missing."""

    def of_gpu(self, uuid: str) -> tuple[Tie, ...]:
        """The ranks on a GPU, lowest first; several where they share it."""
        return tuple(self.ties[rank] for rank in sorted(self.ties) if uuid in self.ties[rank].gpus)

    def ranks_of(self, uuid: str) -> list[int]:
        """The same by number."""
        return [tie.rank for tie in self.of_gpu(uuid)]

    def is_certain(self, uuid: str) -> bool:
        """Whether it was seen to belong to a rank, rather than worked out."""
        return self.sureness(uuid) >= CERTAIN

    def sureness(self, uuid: str) -> float:
        """How sure it is that a rank has it, 0 to 1; 0: of no rank that is known."""
        return max((tie.confidence for tie in self.of_gpu(uuid)), default=0.0)


def tie_up(
    reading: GpuReading, company: GpuUsers, before: GpuOwnership | None = None
) -> GpuOwnership:
    """Who has which GPU now.

    before: what was known a moment ago; it holds while nothing better is known of the same process.
    A GPU that is lost is not listed any more, and would else move every index behind it.
    """
    known = {} if before is None else before.ties
    ties = {}
    for seat in company.seats:
        tie = _better(known.get(seat.rank), _tie(reading, seat, company), seat)
        if tie is not None:
            ties[seat.rank] = tie
    taken = {uuid for tie in ties.values() for uuid in tie.gpus}
    for rank, tie in known.items():
        if rank not in ties and taken.isdisjoint(tie.gpus):
            ties[rank] = replace(tie, source=OwnershipSource.BEFORE)
    return GpuOwnership(ties)


def owners(reading: GpuReading, ownership: GpuOwnership) -> dict[str, int]:
    """UUID and PCI address of each GPU -> its rank; the lowest of those that share one."""
    owned: dict[str, int] = {}
    for gpu in reading.gpus:
        for rank in ownership.ranks_of(gpu.uuid)[:1]:
            owned[gpu.uuid] = rank
            if gpu.pci:
                owned[gpu.pci] = rank
    return owned


def is_of(pid: int, ranks: Iterable[int], company: GpuUsers) -> bool:
    """Whether a process is one of these pids, or descends from one."""
    process = company.processes.get(pid)
    chain = {pid} if process is None else {pid, *process.ancestors}
    return not chain.isdisjoint(ranks)


def _better(before: Tie | None, now: Tie | None, seat: Seat) -> Tie | None:
    if before is None or (before.pid, before.start_ticks) != (seat.pid, seat.start_ticks):
        return now
    if now is None:
        return before
    if now.confidence > before.confidence or now.source is OwnershipSource.TORCH:
        return now
    if now.source is OwnershipSource.DRIVER and before.source is OwnershipSource.DRIVER:
        # A GPU that stopped answering names no users, and is still this rank's.
        return replace(before, gpus=tuple(dict.fromkeys((*before.gpus, *now.gpus))))
    return before


def _tie(reading: GpuReading, seat: Seat, company: GpuUsers) -> Tie | None:
    for source, gpus in _told(reading, seat, company):
        if gpus:
            who = (seat.rank, seat.local_rank, seat.pid, seat.start_ticks)
            return Tie(*who, tuple(gpus), source)
    return None


def _told(
    reading: GpuReading, seat: Seat, company: GpuUsers
) -> Iterator[tuple[OwnershipSource, Sequence[str]]]:
    """One after the other: who is asked later mostly need not be asked."""
    yield OwnershipSource.TORCH, _by_torch(reading, seat)
    yield OwnershipSource.DRIVER, _by_driver(reading, seat, company)
    yield from _by_environment(reading, seat, company)


def _by_torch(reading: GpuReading, seat: Seat) -> list[str]:
    return [gpu.uuid for gpu in reading.gpus if any(_is(device, gpu) for device in seat.devices)]


def _is(device: RankDevice, gpu: Gpu) -> bool:
    """By UUID where both tell it: torch writes it without the driver's prefix."""
    if device.uuid and gpu.uuid:
        names = {device.uuid, f"GPU-{device.uuid}", f"MIG-{device.uuid}"}
        if not names.isdisjoint((gpu.uuid, *gpu.mig_uuids)):
            return True
    return bool(device.pci) and device.pci == gpu.pci


def _by_driver(reading: GpuReading, seat: Seat, company: GpuUsers) -> list[str]:
    used = {
        gpu.uuid: sum(user.memory_bytes or 0 for user in mine)
        for gpu in reading.gpus
        if (mine := [one for one in gpu.users or () if is_of(one.pid, (seat.pid,), company)])
    }
    least = STRAY_SHARE * max(used.values(), default=0)
    return [uuid for uuid, size in used.items() if size >= least]


def _by_environment(
    reading: GpuReading, seat: Seat, company: GpuUsers
) -> tuple[tuple[OwnershipSource, Sequence[str]], ...]:
    by_number = OwnershipSource.LOCAL_RANK
    listed: tuple[str, ...] | None
    if seat.environment is None:
        in_order = sorted(reading.gpus, key=lambda gpu: (gpu.pci, gpu.index))
        listed = tuple(gpu.uuid for gpu in in_order)
    else:
        listed = visible_gpus(reading.gpus, seat.environment)
        if listed is not None and len(set(listed)) == 1:
            return ((OwnershipSource.ONE_VISIBLE, listed[:1]),)
        if VISIBLE in seat.environment:
            by_number = OwnershipSource.VISIBLE_LIST
    number = _local_rank(seat)
    if listed is None or len(listed) != company.slots() or number >= len(listed):
        return ()
    return ((by_number, (listed[number],)),)


def _local_rank(seat: Seat) -> int:
    said = (seat.environment or {}).get(LOCAL_RANK, "")
    return int(said) if said.isdecimal() else seat.local_rank
