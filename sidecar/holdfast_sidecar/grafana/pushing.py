"""Carrying out a push: everything is looked at first; what can't be ended is put back."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast_sidecar.grafana.board import Board, with_source
from holdfast_sidecar.grafana.push_plan import (
    PushPlan,
    Step,
    check_folder,
    check_version,
    plan_push,
)
from holdfast_sidecar.grafana.server import DashboardServer, Refused, Standing
from holdfast_sidecar.grafana.sources import choose_source

MESSAGE = "holdfast dashboards push"


def survey(
    server: DashboardServer, boards: Sequence[Board], folder_uid: str, source: str
) -> PushPlan:
    """What a push would change; asks everything that could stand in its way. Changes nothing."""
    check_version(server.version())
    chosen = choose_source(server.sources(), source)
    if chosen is not None:
        boards = [with_source(board, chosen.uid, chosen.name) for board in boards]
    folder, makes_folder = check_folder(
        folder_uid, server.folder(folder_uid) if folder_uid else None
    )
    there: dict[str, Standing] = {}
    for board in boards:
        standing = server.dashboard(board.uid)
        if standing is not None:
            there[board.uid] = standing
    return plan_push(boards, there, folder, makes_folder)


def push(server: DashboardServer, plan: PushPlan) -> None:
    """All due steps, or none: Refused says what is there when even that failed."""
    made_folder, done = False, []
    try:
        if plan.makes_folder:
            server.create_folder(plan.folder)
            made_folder = True
        for step in plan.due:
            _save(server, step, plan.folder.uid)
            done.append(step)
    except Refused as error:
        left = _put_back(server, done)
        left += _remove_folder(server, plan) if made_folder and not left else []
        raise Refused(error.status, f"{error}; {_outcome(left)}") from None


def _save(server: DashboardServer, step: Step, folder_uid: str) -> None:
    model = dict(step.board.model)
    model.pop("id", None)
    model["version"] = 0 if step.standing is None else step.standing.version
    server.save(model, folder_uid, MESSAGE, overwrite=False)


def _put_back(server: DashboardServer, done: Sequence[Step]) -> list[str]:
    """What was there before is there again; answers what could not be."""
    left = []
    for step in reversed(done):
        try:
            _undo(server, step)
        except Refused:
            left.append(f"dashboard {step.board.uid} is the new one")
    return left


def _undo(server: DashboardServer, step: Step) -> None:
    if step.standing is None:
        server.remove_dashboard(step.board.uid)
    else:
        before = step.standing
        server.save(before.model, before.folder_uid, f"{MESSAGE}: put back", overwrite=True)


def _remove_folder(server: DashboardServer, plan: PushPlan) -> list[str]:
    try:
        server.remove_folder(plan.folder.uid)
    except Refused:
        return [f"an empty folder {plan.folder.title} was made"]
    return []


def _outcome(left: Sequence[str]) -> str:
    if left:
        return f"not all could be put back: {', '.join(left)}"
    return "nothing was changed in the end"
