"""Where a rank stands in the parallel layout, told beside its page."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.contract import environment, page
from holdfast.patches.layout import LayoutReport
from holdfast.rank import process
from holdfast.recording.recorder import Recorder


def mesh(coordinate: list[int] | None, **dimensions: int) -> SimpleNamespace:
    size = 1
    for length in dimensions.values():
        size *= length
    return SimpleNamespace(
        mesh_dim_names=tuple(dimensions) or None,
        shape=tuple(dimensions.values()),
        size=lambda: size,
        get_coordinate=lambda: coordinate,
    )


def stage(index: int, of: int) -> SimpleNamespace:
    return SimpleNamespace(stage_index=index, num_stages=of)


class Scene:
    """A rank whose page is elsewhere."""

    def __init__(self, path: Path) -> None:
        self.path = path
        recorder = Recorder(bytearray(page.PAGE_SIZE), attempt=0)
        process.hold(recorder)
        self.layout = LayoutReport(recorder, path)

    def told(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.path.read_text())
        return told


@pytest.fixture
def scene(tmp_path: Path) -> Any:
    yield Scene(tmp_path / "attempt-0-local-0.layout")
    process.disown()


def test_the_largest_mesh_with_names_counts_and_of_equal_ones_that_with_more_dimensions(
    scene: Scene,
) -> None:
    scene.layout.mesh(mesh([3], dp=4))
    assert scene.told()["dims"] == ["dp"]
    scene.layout.mesh(mesh([1, 0, 1], pp=2, dp=2, tp=2))
    for smaller in (mesh([1], tp=2), mesh([5], dp_tp=8), mesh([0, 1], dp=2, tp=4)):
        scene.layout.mesh(smaller)
    assert scene.told() == {
        "dims": ["pp", "dp", "tp"],
        "shape": [2, 2, 2],
        "coordinate": [1, 0, 1],
        "stage": None,
        "stages": None,
        "micro_batches": None,
        "role": "",
    }


def test_a_mesh_without_names_and_one_that_this_rank_is_not_in_say_nothing(scene: Scene) -> None:
    scene.layout.mesh(mesh([0]))
    scene.layout.mesh(mesh(None, dp=64))
    assert not scene.path.exists()
    scene.layout.mesh(mesh([1], dp=2))
    assert scene.told()["coordinate"] == [1]


def test_into_how_many_micro_batches_the_first_schedule_cuts_a_batch_is_told(scene: Scene) -> None:
    scene.layout.schedule(SimpleNamespace(_n_microbatches=8))
    scene.layout.schedule(SimpleNamespace(_n_microbatches=2))
    assert scene.told()["micro_batches"] == 8


def test_of_several_stages_on_one_rank_the_first_counts(scene: Scene) -> None:
    scene.layout.stage(stage(5, of=8))
    scene.layout.stage(stage(1, of=8))
    scene.layout.stage(stage(3, of=8))
    assert (scene.told()["stage"], scene.told()["stages"]) == (1, 8)


def test_the_users_own_role_is_told_also_when_it_is_named_late(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(environment.ROLE, raising=False)
    scene.layout.role()
    assert not scene.path.exists()
    monkeypatch.setenv(environment.ROLE, "critic")
    scene.layout.role()
    scene.layout.mesh(mesh([1], dp=2))
    assert (scene.told()["role"], scene.told()["dims"]) == ("critic", ["dp"])


def test_what_the_rank_before_told_is_forgotten(scene: Scene) -> None:
    scene.path.write_text('{"role": "of before"}')
    scene.layout.forget()
    scene.layout.forget()
    assert not scene.path.exists()


def test_a_forked_child_says_nothing(scene: Scene) -> None:
    process.disown()
    scene.layout.mesh(mesh([1], dp=2))
    assert not scene.path.exists()
