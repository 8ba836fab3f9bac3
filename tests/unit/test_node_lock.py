"""A node's lock says who held it last, as far as the disk takes that."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from holdfast_sidecar.config.paths import Paths
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.startup import NodeLock, SidecarRecord, lock_node, write_record


def test_whoever_has_it_next_knows_who_is_gone(tmp_path: Path) -> None:
    where = Paths(tmp_path / "shm", tmp_path / "job" / "node")
    first = lock_node(where)
    assert first.predecessor == ""
    first.pass_on("a long incarnation")
    first.pass_on("beef")
    with pytest.raises(BadInput):
        lock_node(where, patience_s=0.0)
    first.release()
    second = lock_node(where)
    assert second.predecessor == "beef"
    second.release()


def test_a_full_disk_is_no_reason_to_leave_a_node_unwatched() -> None:
    lock = NodeLock(os.open("/dev/full", os.O_RDWR), "")
    lock.pass_on("beef")
    lock.release()


def test_where_the_state_directory_takes_nothing_shared_memory_takes_the_lock(
    tmp_path: Path,
) -> None:
    (tmp_path / "state").write_text("")  # nothing can be made below it, by root neither
    (tmp_path / "shm").mkdir()
    shm = tmp_path / "shm" / "holdfast-0" / "job" / "node"
    where = Paths(shm, tmp_path / "state" / "job" / "node")
    first = lock_node(where)
    with pytest.raises(BadInput):
        lock_node(where, patience_s=0.0)
    first.release()
    lock_node(where).release()
    write_record(where.sidecar_record, SidecarRecord("job", "node", 1))


def test_a_state_directory_without_locks_is_stood_in_for_by_shared_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Lustre without `-o flock` and NFS without lockd."""
    state = tmp_path / "state" / "job" / "node"
    flock = fcntl.flock

    def none_in_state(descriptor: int, operation: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(state)):
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", none_in_state)
    (tmp_path / "shm").mkdir()
    where = Paths(tmp_path / "shm" / "holdfast-0" / "job" / "node", state)
    first = lock_node(where)
    first.pass_on("beef")
    with pytest.raises(BadInput, match="already watches"):
        lock_node(where, patience_s=0.0)
    first.release()
    assert os.listdir(tmp_path / "shm") == []
    second = lock_node(where)
    assert second.predecessor == "beef"
    second.release()
