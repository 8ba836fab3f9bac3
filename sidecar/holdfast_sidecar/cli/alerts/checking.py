"""`holdfast alerts check`: whether rules, their tests and routes hold, by promtool and amtool."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from holdfast_sidecar.cli.alerts.given_files import Given, find
from holdfast_sidecar.cli.alerts.given_rules import (
    RuleText,
    is_empty,
    laid_out,
    read,
    read_given,
    told_of,
)
from holdfast_sidecar.cli.alerts.names import known_names, unknown_names
from holdfast_sidecar.cli.alerts.programs import Said, ask
from holdfast_sidecar.cli.alerts.rule_objects import UNREAD, is_unread
from holdfast_sidecar.config.settings import BadInput

WHAT = "files are YAML"
NO_YAML = re.compile(r": yaml: (line \d+: .*)")
"""How promtool names what is no YAML; what is YAML of another shape it has other words for."""


@dataclass(frozen=True)
class Soon:
    """Said before what takes long."""

    what: str


@click.command("check")
@click.argument("paths", nargs=-1, metavar="[FILE|DIR]...", type=click.Path(path_type=Path))
def check_command(paths: tuple[Path, ...]) -> None:
    """Check rule files: those that come with Holdfast, or yours, objects of Kubernetes too.

    Every metric that begins with holdfast_ has to exist in this version. promtool checks the rules
    and runs their tests, amtool checks what Alertmanager reads; where they are missing, that is
    said, and the files are only parsed. The tests that come with Holdfast may take a minute.

    \b
      holdfast alerts check
      holdfast alerts check /etc/prometheus/holdfast my-rules.yaml

    \b
    Exit code: 0 nothing is wrong
               1 something is: it is printed
               2 a file can't be read, or is no YAML (as PyYAML says, or promtool without it)
    """
    wrong = False
    for said in examine(find(paths)):
        if isinstance(said, Soon):
            announce(said)
            continue
        mark = {True: "ok", False: "WRONG", None: "left out"}[said.ok]
        click.echo(f"{mark:8}  {said.what}")
        for line in said.lines:
            click.echo(f"          {line}")
        wrong = wrong or said.ok is False
    sys.exit(1 if wrong else 0)


def announce(soon: Soon) -> None:
    """To whom waits before a terminal: others want the outcome alone."""
    if sys.stderr.isatty():
        click.echo(f"holdfast: {soon.what}", err=True)


def examine(given: Given) -> Iterator[Said | Soon]:
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
        told = told_of(said, files)
        if shape.ok is None:
            _refuse_what_is_no_yaml(told, given.rules)
        yield told
    if given.tests:
        yield Soon("promtool runs the tests of the rules: up to a minute or two")
        yield ask("promtool test rules", "promtool", "test", "rules", *given.tests)
    for path in given.routes:
        yield ask("amtool check-config", "amtool", "check-config", path)


def _refuse_what_is_no_yaml(said: Said, rules: Sequence[Path]) -> None:
    """As where PyYAML is installed."""
    for line in said.lines:
        if found := NO_YAML.search(line):
            path = next((path for path in rules if line.strip().startswith(f"{path}: ")), rules[0])
            raise BadInput(f"{path} is no YAML: {found[1]}")


def parse(rules: Sequence[RuleText], routes: Sequence[Path]) -> Said:
    """Whether the files are YAML of the right shape, where a library for that is installed."""
    wrong = [f"{rule.path}: {why}" for rule in rules if (why := unlike_rules(rule))]
    try:
        yaml = importlib.import_module("yaml")
    except ImportError:
        missing = ["PyYAML is not installed (pip install pyyaml)"]
        return Said(WHAT, False if wrong else None, wrong or missing)
    for rule in rules:
        if not unlike_rules(rule):
            wrong += _wrong_with(rule, yaml)
    for path in routes:
        if not _has(_documents(path, read(path), yaml), "route"):
            wrong.append(f"{path}: has no `route:`")
    return Said(WHAT, not wrong, wrong)


def unlike_rules(rule: RuleText) -> str:
    """What is wrong with it by its text alone; empty: nothing that is seen so."""
    if is_empty(rule.whole):
        return "is empty: no rule is in it"
    if is_unread(rule.whole):
        return UNREAD
    return "" if rule.parts else "has no `groups:`"


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
