from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.unit.checkpoint.snapshot.slots import SIZE, filled

from holdfast.contract.snapshot_file import COPIES_DIRECTORY, OWN_DIRECTORY
from holdfast_sidecar.checkpoint.snapshot.files import SlotBusy, read_slots
from holdfast_sidecar.checkpoint.snapshot.slots import Allocation, Needs, allocate, held_bytes
from holdfast_sidecar.policy.replication import Margin, SnapshotSpace, Wish

WISH = Wish(slots=3, share=1.0)


@dataclass
class Free:
    """A machine with this much room."""

    bytes_free: int = 10**9
    held: list[int] = field(default_factory=list)

    def read(self, held_bytes: int) -> SnapshotSpace:
        self.held.append(held_bytes)
        return SnapshotSpace(self.bytes_free, self.bytes_free)

    def read_margin(self) -> Margin | None:
        return None


def needs(*wants: int, wish: Wish = WISH, existing: int = -1) -> Needs:
    return Needs("job", dict(enumerate(wants)), wish, existing)


def names(shm: Path) -> list[str]:
    return [one.path.name for one in read_slots(shm / OWN_DIRECTORY)]


def fallocate_that_fails_after(count: int) -> Callable[[int, int, int], None]:
    left = [count]

    def fallocate(descriptor: int, offset: int, size: int) -> None:
        if left[0] == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        left[0] -= 1
        os.truncate(descriptor, size)

    return fallocate


def test_every_rank_gets_its_slots(tmp_path: Path) -> None:
    plan = allocate(tmp_path, needs(SIZE, SIZE), Free())
    assert (plan.slots, plan.short_of) == (3, "")
    assert names(tmp_path) == [f"rank-{r}-slot-{s}" for r in (0, 1) for s in (0, 1, 2)]
    assert needs(SIZE, SIZE).are_met(read_slots(tmp_path / OWN_DIRECTORY), plan)


def test_what_could_not_be_made_is_one_rung_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "posix_fallocate", fallocate_that_fails_after(5))
    plan = allocate(tmp_path, needs(SIZE, SIZE), Free())
    assert plan.slots == 2
    assert names(tmp_path) == [f"rank-{r}-slot-{s}" for r in (0, 1) for s in (0, 1)]


def test_nothing_is_left_where_nothing_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "posix_fallocate", fallocate_that_fails_after(0))
    plan = allocate(tmp_path, needs(SIZE), Free())
    assert (plan.slots, plan.size_bytes, names(tmp_path)) == (0, 0, [])
    assert list((tmp_path / OWN_DIRECTORY).iterdir()) == []


def test_slots_and_copies_that_are_there_count_as_room(tmp_path: Path) -> None:
    (tmp_path / COPIES_DIRECTORY).mkdir()
    filled(tmp_path / COPIES_DIRECTORY, 5, 0, step=1)
    free = Free()
    allocate(tmp_path, needs(SIZE), free)
    allocate(tmp_path, needs(SIZE), free)
    assert free.held == [SIZE, 4 * SIZE]
    assert held_bytes(tmp_path) == 4 * SIZE


def test_slots_of_ranks_that_are_no_longer_here_go(tmp_path: Path) -> None:
    (tmp_path / OWN_DIRECTORY).mkdir()
    filled(tmp_path / OWN_DIRECTORY, 7, 0, step=1)
    allocate(tmp_path, needs(SIZE), Free())
    assert names(tmp_path) == [f"rank-0-slot-{n}" for n in range(3)]


def test_what_was_sealed_survives_a_larger_layout(tmp_path: Path) -> None:
    allocate(tmp_path, needs(SIZE), Free())
    filled(tmp_path / OWN_DIRECTORY, 0, 1, step=8)
    allocate(tmp_path, needs(2 * SIZE, existing=8), Free())
    sealed = {one.slot: one.sealed_step for one in read_slots(tmp_path / OWN_DIRECTORY)}
    assert sealed == {0: -1, 1: 8, 2: -1}


def test_it_runs_beside_the_loop_and_is_taken_in_once(tmp_path: Path) -> None:
    allocation = Allocation(tmp_path, Free())
    assert not allocation.conclude()
    allocation.begin(needs(SIZE))
    assert allocation.is_busy
    assert allocation.plan is None
    allocation.wait()
    assert allocation.conclude()
    assert allocation.plan is not None
    assert (allocation.plan.slots, allocation.needs) == (3, needs(SIZE))
    assert not allocation.conclude()


def test_a_slot_that_is_being_written_ends_it_for_now(tmp_path: Path) -> None:
    allocation = Allocation(tmp_path, Free())
    allocate(tmp_path, needs(SIZE), Free())
    with (tmp_path / OWN_DIRECTORY / "rank-0-slot-0").open("rb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        allocation.begin(needs(2 * SIZE))
        allocation.wait()
        with pytest.raises(SlotBusy):
            allocation.conclude()
    assert not allocation.is_busy
    assert allocation.needs is None
