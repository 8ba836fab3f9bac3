"""Where this rank stands in the parallel layout, as far as the script lets torch know.

The largest device mesh whose dimensions have names, the pipeline stages that it holds, into how
many micro-batches their schedule cuts a batch, the role that the user gave it in HOLDFAST_ROLE, at
the latest before `init_process_group`, and for want of all that with whom it exchanges messages.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.contract import environment, page
from holdfast.contract.owned import owned_file
from holdfast.contract.removing import unlink
from holdfast.guard import Guard
from holdfast.patches import messages
from holdfast.patches.group import follow, page_of
from holdfast.patches.names import call_after
from holdfast.rank import importing, process
from holdfast.recording.neighbours import Neighbours
from holdfast.recording.recorder import Recorder
from holdfast.recording.sidecar_files import write_beside

MESHES = "torch.distributed.device_mesh"
STAGES = "torch.distributed.pipelining.stage"
SCHEDULES = "torch.distributed.pipelining.schedules"


class LayoutReport:
    """What is known so far, and told beside the page whenever more is."""

    def __init__(self, recorder: Recorder, path: Path | None) -> None:
        self._recorder = recorder
        self._path = path
        self._size = (0, 0)
        self._told: dict[str, Any] = {
            "dims": [],
            "shape": [],
            "coordinate": [],
            "stage": None,
            "stages": None,
            "micro_batches": None,
            "role": "",
        }

    def forget(self) -> None:
        """Remove what a rank told that had this page before."""
        if self._path is not None:
            unlink(owned_file(self._path), missing_ok=True)

    def role(self) -> None:
        """The user's own word for what this rank does."""
        role = os.environ.get(environment.ROLE, "")
        if role != self._told["role"]:
            self._told["role"] = role
            self._tell()

    def mesh(self, mesh: Any) -> None:
        """A mesh was made. Of those with names the largest counts, and of equal ones that with
        more dimensions: FSDP and slices make further ones, and flattened ones hide what is what.
        """
        names = getattr(mesh, "mesh_dim_names", None)
        if not names:
            return
        size = (int(mesh.size()), len(names))
        coordinate = mesh.get_coordinate()
        if coordinate is None or size <= self._size:
            return
        self._size = size
        self._told.update(
            dims=[str(name) for name in names],
            shape=[int(length) for length in mesh.shape],
            coordinate=[int(place) for place in coordinate],
        )
        self._tell()

    def stage(self, stage: Any) -> None:
        """A pipeline stage was made; of several that one rank holds the first counts."""
        index, known = int(stage.stage_index), self._told["stage"]
        if known is None or index < known:
            self._told.update(stage=index, stages=int(stage.num_stages))
            self._tell()

    def neighbours(self, after: int, beside: tuple[int, ...]) -> None:
        """It exchanges messages with these in each step, and begins by hearing from `after`."""
        self._told["messages"] = {"after": after, "with": list(beside)}
        self._tell()

    def schedule(self, schedule: Any) -> None:
        """A pipeline's schedule was made; of several, for training and evaluating, the first one
        counts."""
        if self._told["micro_batches"] is None:
            self._told["micro_batches"] = int(schedule._n_microbatches)
            self._tell()

    def _tell(self) -> None:
        if self._path is not None and process.current() is self._recorder:
            write_beside(self._path, self._told)


def install(torch: Any, recorder: Recorder, guard: Guard) -> None:
    """Hook where meshes and pipeline stages are made, once their modules are imported."""
    place = page_of(recorder.attempt)
    path = None if place is None else place.with_suffix(page.LAYOUT_SUFFIX)
    layout = LayoutReport(recorder, path)
    guard.run("layout", layout.forget)
    role = guard.wrap("role", layout.role, None)
    role()
    if torch.distributed.is_available():
        follow(torch, "init_process_group", (role,))
        hooking = functools.partial(messages.install, torch, recorder, guard)
        guard.run("messages", functools.partial(hooking, Neighbours(layout.neighbours)))
    is_compiling = torch.compiler.is_compiling
    for module, name, hook in (
        (MESHES, "DeviceMesh", guard.wrap("mesh", layout.mesh, None)),
        (STAGES, "_PipelineStageBase", guard.wrap("pipeline stage", layout.stage, None)),
        (SCHEDULES, "_PipelineSchedule", guard.wrap("schedule", layout.schedule, None)),
    ):
        following = functools.partial(follow_made, module, name, is_compiling, hook)
        importing.once(module, functools.partial(guard.run, name, following))


def follow_made(
    module: str, name: str, is_compiling: Callable[[], bool], hook: Callable[[Any], None]
) -> None:
    """Call the hook with every object of this class once it is made."""
    made = getattr(sys.modules[module], name, None)
    if made is not None:
        call_after(made, "__init__", is_compiling, hook)
