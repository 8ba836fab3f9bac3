"""Process groups as they are made: from then on a rank can keep others waiting.

So it says that it can, who is in which group, and opens the socket on which it can be asked.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.contract import environment, page
from holdfast.contract.foreign_launch import find_seat
from holdfast.contract.page import Flag
from holdfast.guard import Guard
from holdfast.patches.grouped import Groups
from holdfast.patches.names import Function, replace
from holdfast.rank import process
from holdfast.rank.worker_server import has_room, open_server
from holdfast.recording.group_members import write_members
from holdfast.recording.group_slots import GroupSlots
from holdfast.recording.recorder import Recorder

CHANGES = ("_new_group_with_tag", "_register_pg_in_world", "destroy_process_group")
"""What new_group() and split_group() end in, and how groups end; a torch that lacks one of them
tells of fewer groups."""

MOST_ON_A_NODE = 16
"""Nodes have eight GPUs, some sixteen."""


class GroupReport:
    """What this rank tells of its groups, beside its page."""

    def __init__(self, torch: Any, recorder: Recorder, slots: GroupSlots) -> None:
        self._torch = torch
        self._recorder = recorder
        self._slots = slots
        self._told: object = None
        self._page = page_of(recorder.attempt)
        self._is_open = False

    def members(self) -> None:
        """Who is in which group now, and which of them are timed apart."""
        if self._page is None or process.current() is not self._recorder:
            return
        world = self._torch.distributed.distributed_c10d._world
        slots = self._slots.of_names()
        names = [(id(group), world.pg_names.get(group)) for group in world.pg_group_ranks]
        told = (names, slots)
        # Every rank is called for every group that is made, its members or not: in a job of
        # thousands that is hundreds of times, with thousands of ranks to write down each.
        if told != self._told:
            write_members(world, self._page.with_suffix(page.GROUPS_SUFFIX), slots)
            self._told = told

    def slots(self) -> None:
        """Groups were made or ended: whose slot is whose."""
        self._slots.follow(self._torch.distributed.distributed_c10d._world)

    def backends(self) -> None:
        """Whether gloo is all that its groups use, as far as this torch tells."""
        world = self._torch.distributed.distributed_c10d._world
        told = getattr(world, "pg_backend_config", {0: ""})
        if not all(uses_gloo_alone(config) for config in told.values()):
            self._recorder.add_flag(Flag.OTHER_BACKEND)

    def listen(self) -> None:
        """Open the socket, once, where there is room for the threads that answer on it."""
        if self._page is None or self._is_open or process.current() is not self._recorder:
            return
        if os.environ.get(environment.FLIGHT_RECORDER) == "0":
            return
        if not has_room(local_ranks(self._torch.distributed.get_world_size())):
            self._recorder.add_flag(Flag.NO_ROOM_FOR_RECORDER)
            return
        path = self._page.with_suffix(page.SOCKET_SUFFIX)
        self._is_open = open_server(self._torch, path)


def local_ranks(world_size: int) -> int:
    """How many ranks the node has, or may have where its launcher does not say."""
    said = os.environ.get("LOCAL_WORLD_SIZE", "")
    return int(said) if said.isdecimal() else min(world_size, MOST_ON_A_NODE)


def uses_gloo_alone(config: str) -> bool:
    """Of a group's backends as torch writes them down: `cpu:gloo,cuda:nccl`."""
    return all(pair.rpartition(":")[2] == "gloo" for pair in str(config).split(","))


def install(torch: Any, recorder: Recorder, guard: Guard, groups: Groups | None = None) -> None:
    """Hook the first group's initialisation, and what changes groups later."""
    if not torch.distributed.is_available():
        return
    slots = (groups or Groups.of(recorder, torch)).slots
    telling = GroupReport(torch, recorder, slots)
    stands = guard.wrap("group", lambda: recorder.add_flag(Flag.GROUP_INITIALISED), None)
    uses = guard.wrap("group backends", telling.backends, None)
    tells = guard.wrap("group members", telling.members, None)
    timed = guard.wrap("group slots", telling.slots, None)
    slots.tell = tells
    listens = guard.wrap("flight recorder", telling.listen, None)
    follow(torch, "init_process_group", (stands, uses, timed, tells, listens))
    for name in CHANGES:
        follow(torch, name, (uses, timed, tells))


def page_of(attempt: int) -> Path | None:
    """Where this rank's page lies, and what it tells beside it; None outside a job."""
    folder, seat = os.environ.get(environment.PAGE_DIR), find_seat(os.environ)
    if not folder or seat is None:
        return None
    return Path(folder) / page.page_name(attempt, seat.local_rank)


def follow(torch: Any, name: str, hooks: tuple[Callable[[], None], ...]) -> None:
    """Call the hooks after torch's function, under both names by which scripts import it."""

    def wrap(function: Function) -> Function:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            answer = function(*args, **kwargs)
            for hook in hooks:
                hook()
            return answer

        return wrapper

    replace(name, (torch.distributed.distributed_c10d, torch.distributed), wrap)
