from __future__ import annotations

import fcntl
from pathlib import Path

import pytest
from tests.unit.pretend_pages import write_page

from holdfast.contract.identity import ProcessIdentity, ProcessStatus
from holdfast_sidecar.ranks.ending import find_leftovers, has_new_owner, remove_shared_memory

RANK = ProcessIdentity(500, 1000)


def status(session: int, start_ticks: int = 2000, state: str = "S") -> ProcessStatus:
    return ProcessStatus(state, 1, session, 0, start_ticks)


def test_only_younger_processes_of_a_dead_ranks_session_are_left_over() -> None:
    processes = [
        (500, status(500, 1000)),
        (501, status(500)),
        (502, status(500, state="Z")),
        (503, status(77)),
        (504, status(500, start_ticks=900)),
    ]
    found = find_leftovers(processes, [RANK])
    assert [leftover.process for leftover in found] == [ProcessIdentity(501, 2000)]
    assert find_leftovers(processes, []) == []


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """The directory of node `a` of a job, unowned, with one page."""
    directory = tmp_path / "holdfast-0" / "job" / "a"
    directory.mkdir(parents=True)
    write_page(directory)
    (directory / "owner.lock").touch()
    return directory


def test_shared_memory_that_nobody_owns_is_removed_with_its_empty_parents(node: Path) -> None:
    assert remove_shared_memory(node, node / "owner.lock")
    assert not node.parent.parent.exists()
    assert not remove_shared_memory(node, node / "owner.lock")


def test_other_nodes_of_the_job_keep_theirs(node: Path) -> None:
    (node.parent / "b").mkdir()
    assert remove_shared_memory(node, node / "owner.lock")
    assert (node.parent / "b").exists()


def test_a_new_launcher_keeps_it(node: Path) -> None:
    with (node / "owner.lock").open("w") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
        assert has_new_owner(node / "owner.lock")
        assert not remove_shared_memory(node, node / "owner.lock")
    assert not has_new_owner(node / "owner.lock")
    assert node.exists()


def test_a_living_rank_keeps_it(node: Path) -> None:
    (page,) = node.glob("*.page")
    with page.open("r+b") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
        assert not remove_shared_memory(node, node / "owner.lock")
    assert page.exists()


@pytest.mark.parametrize("kind", [fcntl.LOCK_SH, fcntl.LOCK_EX], ids=["read", "written"])
@pytest.mark.parametrize("folder", ["snapshots", "copies"])
def test_a_slot_that_is_in_use_keeps_it(node: Path, folder: str, kind: int) -> None:
    (node / folder).mkdir()
    slot = node / folder / "rank-0-slot-0"
    slot.touch()
    with slot.open("r+b") as user:
        fcntl.flock(user, kind)
        assert not remove_shared_memory(node, node / "owner.lock")
    assert slot.exists()
    assert remove_shared_memory(node, node / "owner.lock")
    assert not node.exists()
