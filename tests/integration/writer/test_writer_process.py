"""A real writer on a desk's pipes: what it writes, and what is left when it or its sidecar dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from tests.integration.writer.scene import Scene
from tests.object_store import ObjectStore
from tests.unit.checkpoint.writer.sealed import seal_slot, shared_state

from holdfast.contract.identity import read_status
from holdfast.contract.storage import open_folder
from holdfast.state.torch_checkpoint import FolderReader
from holdfast_sidecar.checkpoint.writer.requests import (
    Settle,
    WhatIsThere,
    WhatToResume,
    WrittenPart,
)

ROOT = Path(__file__).parents[3]
MakeScene = Callable[..., Scene]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakeScene]:
    made: list[Scene] = []
    (tmp_path / "shm").mkdir()

    def make(trouble: str = "", root: str = "") -> Scene:
        made.append(Scene(tmp_path / "shm", root or str(tmp_path / "ck"), trouble))
        return made[-1]

    yield make
    for scene in made:
        scene.close()


def is_gone(pid: int) -> bool:
    status = read_status(pid)
    return status is None or status.state in ("Z", "X")


def await_end(pid: int) -> None:
    end_s = time.monotonic() + 20
    while not is_gone(pid):
        assert time.monotonic() < end_s, f"{pid} lives on"
        time.sleep(0.02)


def big_state() -> dict[str, torch.Tensor]:
    """Enough for many pieces."""
    return shared_state() | {f"model/{n}": torch.full((1 << 16,), float(n)) for n in range(20)}


def test_slots_become_a_checkpoint_that_torch_loads(make: MakeScene) -> None:
    scene = make()
    for rank in range(2):
        seal_slot(scene.shm, rank, 5, shared_state(), world_size=2)
    part = scene.answer(scene.write([0, 1]))
    sealed = scene.answer(scene.seal(part, world_size=2)).entry
    assert sealed.verdict == "complete"
    listed = scene.answer(WhatToResume("first"))
    assert [c.identifier for c in listed.candidates] == ["aa"]
    state = {key: torch.zeros_like(value) for key, value in shared_state().items()}
    dcp.load(state, storage_reader=dcp.FileSystemReader(sealed.path), no_dist=True)
    assert all(torch.equal(state[key], value) for key, value in shared_state().items())


def test_a_quick_question_is_answered_while_a_checkpoint_is_written(make: MakeScene) -> None:
    scene = make("slow")
    seal_slot(scene.shm, 0, 5, big_state())
    writing = scene.write([0])
    scene.begin(writing)
    assert scene.answer(WhatIsThere("now")).entries == []
    assert scene.desk.ask(writing) is None


def test_a_killed_writer_is_started_again_and_what_it_wrote_is_void(make: MakeScene) -> None:
    scene = make("slow")
    seal_slot(scene.shm, 0, 5, big_state())
    writing = scene.write([0])
    scene.begin(writing)
    scene.mend()
    os.kill(scene.process.pid, signal.SIGKILL)
    with pytest.raises(OSError, match="writer process was ended by SIGKILL"):
        scene.answer(writing)
    assert scene.answer(Settle(writing.order)).entry is None
    assert "void.json" in scene.files()
    part = scene.answer(scene.write([0], identifier="bb"))
    assert scene.answer(scene.seal(part, identifier="bb")).entry.identifier == "bb"
    listed = scene.answer(WhatToResume("after"))
    assert [c.identifier for c in listed.candidates] == ["bb"]


def test_a_writer_dies_with_its_sidecar_and_leaves_no_checkpoint(
    make: MakeScene, tmp_path: Path
) -> None:
    after = make()
    seal_slot(after.shm, 0, 5, big_state())
    asker = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.writer.asker", after.shm, tmp_path / "ck"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert asker.stdout is not None
    try:
        writer = int(asker.stdout.readline())
    finally:
        asker.kill()
        asker.wait()
    await_end(writer)
    listed = after.answer(WhatToResume("after"))
    assert (listed.candidates, listed.obstacle) == ([], "")
    part = after.answer(after.write([0], step=5, identifier="bb"))
    assert after.answer(after.seal(part, identifier="bb")).entry.identifier == "bb"


def test_a_writer_that_is_idle_leaves_and_another_one_answers(make: MakeScene) -> None:
    scene = make("idle")
    scene.answer(WhatIsThere("first"))
    first = scene.process.pid
    await_end(first)
    assert scene.answer(WhatIsThere("second")).entries == []
    assert scene.process.pid != first


def test_storage_that_hangs_keeps_nobody_waiting(make: MakeScene) -> None:
    scene = make("hanging")
    started_s = time.monotonic()
    assert scene.desk.ask(WhatIsThere("x")) is None
    time.sleep(1.5)
    assert scene.desk.ask(WhatIsThere("x")) is None
    assert scene.desk.hangs_for() > 1
    assert time.monotonic() - started_s < 10
    hanging = scene.process.pid
    scene.process.give_up("test")
    await_end(hanging)


def test_a_write_that_nobody_waits_for_makes_room_for_the_next(make: MakeScene) -> None:
    scene = make("slow")
    seal_slot(scene.shm, 0, 5, big_state())
    writing = scene.write([0])
    scene.begin(writing)
    first = scene.process.pid
    scene.desk.abandon(writing, "void")
    await_end(first)
    assert scene.answer(WhatIsThere("x")).entries == []


def test_what_else_was_asked_is_answered_though_a_write_was_stopped(make: MakeScene) -> None:
    scene = make("slow")
    seal_slot(scene.shm, 0, 5, big_state())
    writing, sealing = scene.write([0]), scene.seal(WrittenPart(), identifier="bb")
    scene.begin(writing)
    scene.desk.ask(sealing)
    scene.await_asked(2)
    scene.mend()
    scene.desk.abandon(writing, "void")
    with pytest.raises(OSError, match="__0_written"):  # by storage, which has no such part
        scene.answer(sealing)


def test_a_writer_that_cant_be_started_is_told_and_tried_again(make: MakeScene) -> None:
    scene = make()
    scene.process._command = ("/nowhere/python",)
    with pytest.raises(OSError, match="no writer could be started"):
        scene.answer(WhatIsThere("x"))
    scene.mend()
    assert scene.answer(WhatIsThere("x")).entries == []


@pytest.mark.root
def test_a_full_disk_is_an_error_that_leaves_its_room_to_others(
    make: MakeScene, tmp_path: Path
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", small])
    if mounted.returncode:
        pytest.skip("needs root that may mount")
    try:
        scene = make(root=str(small / "ck"))
        seal_slot(scene.shm, 0, 5, big_state())
        with pytest.raises(OSError, match="No space left"):
            scene.answer(scene.write([0]))
        seal_slot(scene.shm, 0, 6, shared_state(), number=1)
        part = scene.answer(scene.write([0], step=6, identifier="bb"))
        assert scene.answer(scene.seal(part, step=6, identifier="bb")).entry.step == 6
        listed = scene.answer(WhatToResume("x"))
        assert [c.identifier for c in listed.candidates] == ["bb"]
    finally:
        subprocess.run(["umount", "-l", small], check=True)


def test_an_object_store_takes_checkpoints_too(make: MakeScene, object_store: ObjectStore) -> None:
    scene = make(root=f"{object_store.url}/jobs/tested")
    seal_slot(scene.shm, 0, 5, big_state())
    part = scene.answer(scene.write([0]))
    sealed = scene.answer(scene.seal(part)).entry
    assert sealed.path.startswith("s3://")
    assert [c.step for c in scene.answer(WhatToResume("x")).candidates] == [5]
    state = {key: torch.zeros_like(value) for key, value in big_state().items()}
    dcp.load(state, storage_reader=FolderReader(open_folder(sealed.path)), no_dist=True)
    assert all(torch.equal(state[key], value) for key, value in big_state().items())


def test_a_writer_killed_while_it_uploads_leaves_no_checkpoint(
    make: MakeScene, object_store: ObjectStore
) -> None:
    scene = make("slow", root=f"{object_store.url}/killed")
    seal_slot(scene.shm, 0, 5, big_state())
    writing = scene.write([0])
    scene.begin(writing)
    os.kill(scene.process.pid, signal.SIGKILL)
    with pytest.raises(OSError, match="SIGKILL"):
        scene.answer(writing)
    assert scene.answer(WhatToResume("x")).candidates == []
