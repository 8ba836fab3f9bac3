"""Who is in which group, told beside the page whenever it changed and only then."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.contract import environment, page
from holdfast.patches.group import GroupReport
from holdfast.rank import process
from holdfast.recording.group_slots import GroupSlots
from holdfast.recording.recorder import Recorder


class Group:
    """Stands for a process group."""

    group_desc = "mesh_dp"


class Scene:
    """A rank of a job, and torch's book of its groups."""

    def __init__(self, folder: Path) -> None:
        recorder = Recorder(bytearray(page.PAGE_SIZE), attempt=0)
        process.hold(recorder)
        self.world = SimpleNamespace(default_pg=None, pg_names={}, pg_group_ranks={})
        c10d = SimpleNamespace(_world=self.world)
        torch = SimpleNamespace(distributed=SimpleNamespace(distributed_c10d=c10d))
        self.telling = GroupReport(torch, recorder, GroupSlots(recorder))
        self.path = (folder / page.page_name(0, 0)).with_suffix(page.GROUPS_SUFFIX)

    def told(self) -> dict[str, Any]:
        self.telling.slots()
        self.telling.members()
        told: dict[str, Any] = json.loads(self.path.read_text())
        return told


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv(environment.PAGE_DIR, str(tmp_path))
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.setenv(name, "0")
    yield Scene(tmp_path)
    process.disown()


def test_a_group_is_told_once_its_ranks_are_known_which_may_be_after_its_name(scene: Scene) -> None:
    alone = Group()
    scene.world.pg_names[alone] = "0"
    assert scene.told() == {}
    scene.world.pg_group_ranks[alone] = {7: 0}
    (told,) = scene.told().values()
    assert (told["title"], told["ranks"], told["slot"]) == ("mesh_dp", [7], None)


def test_groups_of_others_leave_the_file_as_it_is(scene: Scene) -> None:
    group = Group()
    scene.world.default_pg = group
    scene.world.pg_names[group] = "0"
    scene.world.pg_group_ranks[group] = {5: 1, 3: 0}
    (told,) = scene.told().values()
    assert (told["ranks"], told["slot"]) == ([3, 5], 0)
    written = scene.path.stat().st_ino
    scene.told()
    assert scene.path.stat().st_ino == written
    scene.world.pg_group_ranks.clear()
    assert scene.told() == {}
