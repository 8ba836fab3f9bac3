"""A node's lock says who held it last, as far as the disk takes that."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast_sidecar.bad_input import BadInput
from holdfast_sidecar.places import Places
from holdfast_sidecar.sidecar_record import NodeLock, lock_node


def test_whoever_has_it_next_knows_who_is_gone(tmp_path: Path) -> None:
    where = Places(tmp_path / "shm", tmp_path / "job" / "node")
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
