"""Which files a person gave to be checked: rules, their tests, and what Alertmanager reads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast_sidecar.cli.alerts.given_rules import read
from holdfast_sidecar.config.paths import asset
from holdfast_sidecar.config.settings import BadInput

ROUTES = "alertmanager.yml"

ROUTE = re.compile(r"^route:", re.MULTILINE)
GROUPS = re.compile(r"^groups:", re.MULTILINE)


@dataclass(frozen=True)
class Given:
    """What is to be checked."""

    rules: Sequence[Path]
    tests: Sequence[Path] = ()
    routes: Sequence[Path] = ()


def find(paths: Sequence[Path]) -> Given:
    """The files of these paths; none given: those that come with Holdfast."""
    if not paths:
        return of_folder(asset("alerts"))
    found = [of_folder(path) if path.is_dir() else of_file(path) for path in paths]
    return Given(
        [path for one in found for path in one.rules],
        [path for one in found for path in one.tests],
        [path for one in found for path in one.routes],
    )


def of_file(path: Path) -> Given:
    """Rules or routes, by what is in it."""
    return Given([], routes=[path]) if is_for_alertmanager(path) else Given([path])


def of_folder(folder: Path) -> Given:
    """As `export --out` lays it out, or a folder of rule files."""
    inner = folder / "rules"
    found = sorted((inner if inner.is_dir() else folder).glob("*.y*ml"))
    routes = [path for path in found if is_for_alertmanager(path)]
    rules = [path for path in found if path not in routes]
    if not rules:
        raise BadInput(f"{folder} has no rule files (*.yaml)")
    beside = folder / ROUTES
    if beside.exists() and beside not in routes:
        routes.append(beside)
    return Given(rules, sorted(folder.glob("tests/*.yaml")), routes)


def is_for_alertmanager(path: Path) -> bool:
    """By its name, or as it has routes and no rules; BadInput where there is no text."""
    if path.name == ROUTES:
        return True
    text = read(path)
    return ROUTE.search(text) is not None and GROUPS.search(text) is None
