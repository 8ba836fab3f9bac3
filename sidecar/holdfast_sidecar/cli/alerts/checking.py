"""`holdfast alerts check`: whether rules, their tests and routes hold, by promtool and amtool."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from holdfast_sidecar.assets import asset
from holdfast_sidecar.bad_input import BadInput
from holdfast_sidecar.cli.alerts.given_rules import (
    RuleText,
    laid_out,
    read,
    read_given,
    told_of,
)
from holdfast_sidecar.cli.alerts.names import known_names, unknown_names
from holdfast_sidecar.cli.alerts.programs import Said, ask

ROUTES = "alertmanager.yml"
WHAT = "files are YAML"


@dataclass(frozen=True)
class Given:
    """What is to be checked."""

    rules: Sequence[Path]
    tests: Sequence[Path] = ()
    routes: Path | None = None


@click.command("check")
@click.argument("paths", nargs=-1, metavar="[FILE|DIR]...", type=click.Path(path_type=Path))
def check_command(paths: tuple[Path, ...]) -> None:
    """Check rule files: those that come with Holdfast, or yours, objects of Kubernetes too.

    Every metric that begins with holdfast_ has to exist in this version. promtool checks the rules
    and runs their tests, amtool checks alertmanager.yml; where they are missing, that is said, and
    the files are only parsed.

    \b
      holdfast alerts check
      holdfast alerts check /etc/prometheus/holdfast my-rules.yaml

    \b
    Exit code: 0 nothing is wrong
               1 something is: it is printed
               2 a file can't be read, or is no YAML
    """
    wrong = False
    for said in examine(find(paths)):  # each as it comes: the tests take some seconds
        mark = {True: "ok", False: "WRONG", None: "left out"}[said.ok]
        click.echo(f"{mark:8}  {said.what}")
        for line in said.lines:
            click.echo(f"          {line}")
        wrong = wrong or said.ok is False
    sys.exit(1 if wrong else 0)


def find(paths: Sequence[Path]) -> Given:
    """The files of these paths; none given: those that come with Holdfast."""
    if not paths:
        return of_folder(asset("alerts"))
    found = [of_folder(path) if path.is_dir() else of_file(path) for path in paths]
    routes = [one.routes for one in found if one.routes is not None]
    return Given(
        [path for one in found for path in one.rules],
        [path for one in found for path in one.tests],
        routes[0] if routes else None,
    )


def of_file(path: Path) -> Given:
    """Rules, unless its name is that of the routes."""
    return Given([], routes=path) if path.name == ROUTES else Given([path])


def of_folder(folder: Path) -> Given:
    """As `export --out` lays it out, or a folder of rule files."""
    inner = folder / "rules"
    rules = sorted((inner if inner.is_dir() else folder).glob("*.y*ml"))
    rules = [path for path in rules if path.name != ROUTES]
    if not rules:
        raise BadInput(f"{folder} has no rule files (*.yaml)")
    routes = folder / ROUTES
    return Given(rules, sorted(folder.glob("tests/*.yaml")), routes if routes.exists() else None)


def examine(given: Given) -> Iterator[Said]:
    """What is to be said, in the order in which a person would look."""
    rules = [read_given(path) for path in given.rules]
    shape = parse(rules, given.routes)
    yield shape
    if shape.ok is False:
        return  # of what was not understood nothing is right, and promtool says the same at length
    texts = {rule.path.name: "\n".join(rule.parts) for rule in rules}
    wrong = unknown_names(texts, known_names())
    yield Said("every metric of ours exists", not wrong, wrong)
    if rules:
        many = f"{len(rules)} rule file{'s' if len(rules) != 1 else ''}"
        with laid_out(rules) as files:
            said = ask(f"promtool check rules: {many}", "promtool", "check", "rules", *files)
        yield told_of(said, files)
    if given.tests:
        yield ask("promtool test rules", "promtool", "test", "rules", *given.tests)
    if given.routes is not None:
        yield ask("amtool check-config", "amtool", "check-config", given.routes)


def parse(rules: Sequence[RuleText], routes: Path | None) -> Said:
    """Whether the files are YAML of the right shape, where a library for that is installed."""
    wrong = [f"{rule.path}: has no `groups:`" for rule in rules if not rule.parts]
    try:
        yaml = importlib.import_module("yaml")
    except ImportError:
        missing = ["PyYAML is not installed (pip install pyyaml)"]
        return Said(WHAT, False if wrong else None, wrong or missing)
    for rule in rules:
        wrong += _wrong_with(rule, yaml)
    if routes is not None and not _has(_documents(routes, read(routes), yaml), "route"):
        wrong.append(f"{routes}: has no `route:`")
    return Said(WHAT, not wrong, wrong)


def _wrong_with(rule: RuleText, yaml: Any) -> Iterator[str]:
    written = _documents(rule.path, rule.whole, yaml)
    if rule.is_plain and len(written) > 1:
        yield f"{rule.path}: holds {len(written)} documents, of which Prometheus reads one"
        return
    for part in rule.parts:
        if not _has(_documents(rule.path, part, yaml), "groups"):
            yield f"{rule.path}: has no `groups:`"


def _documents(path: Path, text: str, yaml: Any) -> list[Any]:
    try:
        return list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        raise BadInput(f"{path} is no YAML: {error}") from None


def _has(documents: Sequence[Any], key: str) -> bool:
    return len(documents) == 1 and isinstance(documents[0], dict) and key in documents[0]
