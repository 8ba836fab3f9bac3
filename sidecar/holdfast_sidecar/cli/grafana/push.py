"""What a push would change: only what differs, and nothing where it can't be done whole. Pure."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast_sidecar.cli.grafana.api import (
    DashboardServer,
    DataSource,
    Folder,
    GrafanaError,
    StoredDashboard,
)
from holdfast_sidecar.config.settings import BadInput

# What of a dashboard is not in Grafana as it was written, line by line. Pure.
#
# Only what we wrote counts: Grafana adds defaults of its own, and brings an older schema up to its
# own on reading, which would look like a change each time.

OWN_OF_GRAFANA = frozenset({"id", "version", "schemaVersion"})
"""It numbers and dates what it keeps."""

LONGEST_VALUE = 90


def differences(wanted: Any, there: Any, path: str = "") -> Iterator[str]:
    """`+ what is missing`, `~ what is otherwise: there → wanted`."""
    if isinstance(wanted, dict) and isinstance(there, dict):
        yield from _of_objects(wanted, there, path)
    elif isinstance(wanted, list) and isinstance(there, list) and len(wanted) == len(there):
        for index, (one, other) in enumerate(zip(wanted, there, strict=True)):
            yield from differences(one, other, f"{path}[{_name(one, index)}]")
    elif isinstance(wanted, list) and isinstance(there, list):
        yield from _of_lists(wanted, there, path)
    elif wanted != there:
        yield f"~ {path}: {_short(there)} → {_short(wanted)}"


def _of_objects(wanted: dict[str, Any], there: dict[str, Any], path: str) -> Iterator[str]:
    for name, value in sorted(wanted.items()):
        if not path and name in OWN_OF_GRAFANA:
            continue
        inner = f"{path}.{name}" if path else name
        if name in there:
            yield from differences(value, there[name], inner)
        elif value not in (None, "", [], {}):  # what is empty may be left out
            yield f"+ {inner}: {_short(value)}"


def _of_lists(wanted: list[Any], there: list[Any], path: str) -> Iterator[str]:
    """Of another length: what has come and gone, by name where it has one."""
    names = {_name(one, index): one for index, one in enumerate(wanted)}
    known = {_name(one, index): one for index, one in enumerate(there)}
    yield f"~ {path}: {len(there)} → {len(wanted)} of them"
    for name, one in names.items():
        if name in known:
            yield from differences(one, known[name], f"{path}[{name}]")
        else:
            yield f"+ {path}[{name}]"
    yield from (f"- {path}[{name}]" for name in known if name not in names)


def _name(value: Any, index: int) -> str:
    """A panel by its title, a variable by its name, a query by its letter."""
    if isinstance(value, dict):
        for key in ("title", "name", "refId"):
            if isinstance(value.get(key), str) and value[key]:
                return str(value[key])
    return str(index)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


# The shipped dashboards, as they are pushed.

Json = dict[str, Any]


@dataclass(frozen=True)
class Dashboard:
    """One dashboard; its uid is the same in every Grafana."""

    uid: str
    title: str
    model: Json


def read_boards(folder: Path) -> list[Dashboard]:
    """Every dashboard of this folder, by name. OSError and ValueError as they come."""
    boards = []
    for path in sorted(folder.glob("holdfast-*.json")):
        model = json.loads(path.read_text(encoding="utf-8"))
        boards.append(Dashboard(model["uid"], model["title"], model))
    return boards


def with_source(board: Dashboard, uid: str, name: str) -> Dashboard:
    """The same with this data source chosen at its top; others can still be chosen there."""
    model = copy.deepcopy(board.model)
    for variable in model["templating"]["list"]:
        if variable["type"] == "datasource":
            variable["current"] = {"selected": False, "text": name, "value": uid}
    return Dashboard(board.uid, board.title, model)


OLDEST = 10
"""Grafana's major version from which on these dashboards import: panels as they use them, and
folders by uid."""

OWN_FOLDER = Folder("holdfast", "Holdfast")
"""Made where no other is named."""


@dataclass(frozen=True)
class Step:
    """One dashboard: what is wanted, what is there, and how they differ."""

    board: Dashboard
    standing: StoredDashboard | None
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
    boards: Sequence[Dashboard],
    there: Mapping[str, StoredDashboard],
    folder: Folder,
    makes_folder: bool,
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


def _step(board: Dashboard, standing: StoredDashboard | None, folder: Folder) -> Step:
    if standing is None:
        return Step(board, None, ())
    changes = list(differences(board.model, standing.model))
    if standing.folder_uid != folder.uid:
        changes.insert(0, f"~ folder: {standing.folder_uid or 'the top'} → {folder.title}")
    return Step(board, standing, tuple(changes))


def _check(board: Dashboard, standing: StoredDashboard) -> None:
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


# Which data source the dashboards ask. Pure.

PROMETHEUS = "prometheus"
"""Grafana's type for Prometheus and for all that speak like it (Mimir, Thanos, VictoriaMetrics)."""


def choose_source(known: Sequence[DataSource] | None, wanted: str) -> DataSource | None:
    """The one that was named, by uid or name; None: the dashboards take the default one.

    BadInput where it isn't there, isn't a Prometheus, or there is none at all.
    """
    if known is None:
        if wanted:
            raise BadInput(
                f"this token may not list data sources, so that {wanted!r} can't be checked: give "
                "it the role Admin, or push without --data-source and choose it in the dashboards"
            )
        return None
    fitting = [source for source in known if source.kind == PROMETHEUS]
    if not fitting:
        raise BadInput(
            "this Grafana has no data source of type Prometheus: add one first "
            "(Connections, Data sources), or provision dashboards/provisioning/datasources.yaml"
        )
    return _named(known, fitting, wanted) if wanted else None


def _named(known: Sequence[DataSource], fitting: Sequence[DataSource], wanted: str) -> DataSource:
    for source in fitting:
        if wanted in (source.uid, source.name):
            return source
    if any(wanted in (source.uid, source.name) for source in known):
        raise BadInput(f"data source {wanted!r} is not of type Prometheus")
    names = ", ".join(sorted(source.name for source in fitting))
    raise BadInput(
        f"no data source {wanted!r} in this Grafana; of type Prometheus there are: {names}"
    )


# Carrying out a push: everything is looked at first; what can't be ended is put back.

MESSAGE = "holdfast dashboards push"


def survey(
    server: DashboardServer, boards: Sequence[Dashboard], folder_uid: str, source: str
) -> PushPlan:
    """What a push would change; asks everything that could stand in its way. Changes nothing."""
    check_version(server.version())
    chosen = choose_source(server.sources(), source)
    if chosen is not None:
        boards = [with_source(board, chosen.uid, chosen.name) for board in boards]
    folder, makes_folder = check_folder(
        folder_uid, server.folder(folder_uid) if folder_uid else None
    )
    there: dict[str, StoredDashboard] = {}
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
    except GrafanaError as error:
        left = _put_back(server, done)
        left += _remove_folder(server, plan) if made_folder and not left else []
        raise GrafanaError(error.status, f"{error}; {_outcome(left)}") from None


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
        except GrafanaError:
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
    except GrafanaError:
        return [f"an empty folder {plan.folder.title} was made"]
    return []


def _outcome(left: Sequence[str]) -> str:
    if left:
        return f"not all could be put back: {', '.join(left)}"
    return "nothing was changed in the end"


# Bringing dashboards and incidents into a Grafana: what to change is decided here, purely; the
# client (the optional extra `grafana`) is imported only when a command talks to one.
