"""What a push would change: only what differs, and nothing where it can't be done whole. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.grafana.board import Board
from holdfast_sidecar.grafana.differences import differences
from holdfast_sidecar.grafana.server import Folder, Standing

OLDEST = 10
"""Grafana's major version from which on these dashboards import: panels as they use them, and
folders by uid."""

OWN_FOLDER = Folder("holdfast", "Holdfast")
"""Made where no other is named."""


@dataclass(frozen=True)
class Step:
    """One dashboard: what is wanted, what is there, and how they differ."""

    board: Board
    standing: Standing | None
    changes: tuple[str, ...]

    @property
    def is_due(self) -> bool:
        """Whether anything has to be pushed."""
        return self.standing is None or bool(self.changes)

    @property
    def word(self) -> str:
        """What becomes of it."""
        if self.standing is None:
            return "create"
        return "change" if self.changes else "same"


@dataclass(frozen=True)
class PushPlan:
    """All that a push does."""

    folder: Folder
    makes_folder: bool
    steps: tuple[Step, ...]

    @property
    def due(self) -> list[Step]:
        """What differs."""
        return [step for step in self.steps if step.is_due]


def plan_push(
    boards: Sequence[Board], there: Mapping[str, Standing], folder: Folder, makes_folder: bool
) -> PushPlan:
    """The steps; BadInput where one of them can't be taken, before any is."""
    steps = tuple(_step(board, there.get(board.uid), folder) for board in boards)
    for step in steps:
        if step.is_due and step.standing is not None:
            _check(step.board, step.standing)
    return PushPlan(folder, makes_folder and any(step.is_due for step in steps), steps)


def check_version(version: str) -> None:
    """BadInput for a Grafana that is too old; one that doesn't tell is taken at its word."""
    major = version.split(".")[0]
    if major.isdigit() and int(major) < OLDEST:
        raise BadInput(
            f"this Grafana is {version}; the dashboards need {OLDEST} or newer: update it"
        )


def check_folder(uid: str, found: Folder | None) -> tuple[Folder, bool]:
    """The folder, and whether it has to be made: only our own is, never one that was named."""
    if not uid:
        return Folder("", "the top"), False
    if found is not None:
        return found, False
    if uid != OWN_FOLDER.uid:
        raise BadInput(
            f"no folder with uid {uid!r} in this Grafana: make it, or take its uid from its "
            "address (/dashboards/f/UID); without --folder-uid the folder Holdfast is made"
        )
    return OWN_FOLDER, True


def _step(board: Board, standing: Standing | None, folder: Folder) -> Step:
    if standing is None:
        return Step(board, None, ())
    changes = list(differences(board.model, standing.model))
    if standing.folder_uid != folder.uid:
        changes.insert(0, f"~ folder: {standing.folder_uid or 'the top'} → {folder.title}")
    return Step(board, standing, tuple(changes))


def _check(board: Board, standing: Standing) -> None:
    if standing.is_provisioned:
        raise BadInput(
            f"dashboard {board.uid} comes from a file of that Grafana's (provisioning): change "
            "the file (holdfast dashboards export), or take it out there"
        )
    if not standing.may_save:
        raise BadInput(
            f"this token may not change dashboard {board.uid}: it needs the role Editor, and Edit "
            "on the folder"
        )
