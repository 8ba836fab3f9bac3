"""What this rank finds in its slots after a restart, and which snapshot all ranks find."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.contract import environment
from holdfast.contract.snapshot_file import FETCHED_WITHIN_S, fetched_name
from holdfast.recording.placement import Placement
from holdfast.snapshots.slot import Slot
from holdfast.snapshots.slot_pool import Name, found_slots, own_folder
from holdfast.snapshots.snapshot_source import SnapshotSource, is_undamaged, read_snapshot
from holdfast.state.agreement import BoardLost, until_next_look_s
from holdfast.state.loading import LoadFailed

log = logging.getLogger(__name__)

LOOK_S = 0.02
CLEAR_LOOKS = 50
"""The sidecar reads a slot in passing, for its checksum; a writer at work may stay for minutes."""


@dataclass
class Found:
    """This rank's sealed slots."""

    slots: list[Slot]
    snapshots: dict[Name, SnapshotSource]

    def check(self, name: Name) -> None:
        """Raises LoadFailed where its bytes have changed since the sidecar read them."""
        if not is_undamaged(self.snapshots[name]):
            raise LoadFailed("its bytes have changed since it was sealed")

    def ancestors(self, name: Name) -> tuple[str, ...]:
        """Checkpoints that it goes back to, newest first."""
        return tuple(map(str, self.snapshots[name].state.get("ancestors", ())))

    def give_up(self, name: Name) -> None:
        """Some rank can't load it: nobody shall try it again."""
        self.snapshots.pop(name).slot.clear()

    def keep_only(self, kept: Name | None, pause: Callable[[float], None] = time.sleep) -> None:
        """Clear every slot but this one: what lay ahead of where the job goes on is abandoned.

        What lies behind it is only in the way, and may still be on its way to storage.
        """
        for slot in self.slots:
            header = slot.header()
            if header is None or header.sealed_step is None:
                continue
            name = (header.attempt, header.sealed_step)
            if kept is not None and name < kept and header.sealed_step < kept[1]:
                slot.clear()
            elif name != kept and not _clear(slot, pause):
                log.warning("holdfast: %s is being read and could not be cleared", slot.path.name)


@dataclass(frozen=True)
class SlotsOfBefore:
    """Where the slots lie that the ranks of earlier attempts left to this one."""

    page_dir: Path
    rank: int
    job: str
    attempt: int

    def find(self, fetches: Collection[str], since: int = 0, below: int | None = None) -> Found:
        """What is in them, once the sidecar has brought what it fetches for this rank.

        What attempts before `since` sealed is not counted: the job went back behind it, and a rank
        that died while it resumed may not have cleared its slots. Nor is what is of `below` or
        more steps (None: no such limit).
        """
        if str(self.rank) in fetches:
            reason = Fetched(self.page_dir, self.attempt).wait()
            if reason:
                log.warning("holdfast: copies of the snapshot did not come: %s", reason)
        return find(own_folder(str(self.page_dir)), self.rank, self.job, since, below)

    def clear(self) -> None:
        """Nothing in them will be gone on from."""
        find(own_folder(str(self.page_dir)), self.rank, self.job).keep_only(None)


def read_slots_of_before(env: Mapping[str, str], rank: int) -> SlotsOfBefore | None:
    """As this rank was started; None without Holdfast around it."""
    folder = env.get(environment.PAGE_DIR, "")
    if not folder:
        return None
    attempt = int(env.get(environment.ATTEMPT, "0"))
    return SlotsOfBefore(Path(folder), rank, env.get(environment.JOB, ""), attempt)


def find(folder: Path, rank: int, job: str, since: int = 0, below: int | None = None) -> Found:
    """Look into all slots of this rank; see SlotsOfBefore.find."""
    slots = list(found_slots(folder, rank))
    snapshots = {}
    for slot in slots:
        with slot.reading() as is_free:
            source = read_snapshot(slot, job) if is_free else None
        if source is None or source.header.attempt < since:
            continue
        if below is None or source.header.step < below:
            snapshots[(source.header.attempt, source.header.step)] = source
    return Found(slots, snapshots)


@dataclass(frozen=True)
class Choosing:
    """How all ranks come to one snapshot: each says what it has, rank 0 chooses."""

    place: Placement
    timeout_s: float
    now_s: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep

    def choose(self, turn: int, mine: list[Name], floor: int) -> Name | None:
        """The newest that all ranks have and that is not behind step `floor`; None: none is."""
        if self.place.world_size == 1:
            return newest_common([mine], floor)
        board = self.place.store
        try:
            board.set(f"resume/has/{turn}/{self.place.rank}", json.dumps(mine))
            if self.place.rank == 0:
                keys = [f"resume/has/{turn}/{rank}" for rank in range(self.place.world_size)]
                self._await(keys)
                said = [[(int(a), int(s)) for a, s in json.loads(board.get(key))] for key in keys]
                board.set(f"resume/chosen/{turn}", json.dumps(newest_common(said, floor)))
            self._await([f"resume/chosen/{turn}"])
            chosen = json.loads(board.get(f"resume/chosen/{turn}"))
        except RuntimeError as error:
            raise BoardLost(str(error)) from error
        return (chosen[0], chosen[1]) if chosen else None

    def _await(self, keys: list[str]) -> None:
        start_s = self.now_s()
        while not self.place.store.check(keys):
            waited_s = self.now_s() - start_s
            if waited_s >= self.timeout_s:
                raise BoardLost(f"not every rank said within {self.timeout_s:g} s what it has")
            self.pause(until_next_look_s(waited_s))


def newest_common(said: list[list[Name]], floor: int) -> Name | None:
    """The newest snapshot that every rank has, unless it is behind step `floor`."""
    common = set.intersection(*(set(names) for names in said))
    newest = max(common, default=None)
    return newest if newest is not None and newest[1] >= floor else None


def _clear(slot: Slot, pause: Callable[[float], None]) -> bool:
    for _ in range(CLEAR_LOOKS):
        if slot.clear():
            return True
        pause(LOOK_S)
    return False


@dataclass(frozen=True)
class Fetched:
    """The sidecar's word on copies that it brought from other nodes for this attempt."""

    folder: Path
    attempt: int
    timeout_s: float = FETCHED_WITHIN_S
    now_s: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = field(default=time.sleep)

    def wait(self) -> str:
        """Wait until they are there; why they are not, empty when they are."""
        marker = self.folder / fetched_name(self.attempt)
        end_s = self.now_s() + self.timeout_s
        while True:
            try:
                word = json.loads(marker.read_text())
                return "" if word["ok"] else str(word["reason"])
            except FileNotFoundError:
                if self.now_s() >= end_s:
                    return f"the sidecar did not bring them within {self.timeout_s:g} s"
            except (OSError, ValueError, KeyError, TypeError) as error:
                return f"{marker.name} can't be read: {error}"
            self.pause(LOOK_S)
