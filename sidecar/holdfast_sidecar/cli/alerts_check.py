"""`holdfast alerts`: the Prometheus rules, routes and runbooks that come with Holdfast."""

from __future__ import annotations

import difflib
import importlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from holdfast_sidecar.cli.alerts_export import (
    UNREAD,
    export_command,
    is_of_kubernetes,
    is_unread,
    rules_within,
)
from holdfast_sidecar.config.paths import asset
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.export.catalogue import CATALOGUE

# Whether rules name only metrics that there are: Holdfast's own, and what the rules record.

WORD = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
RECORDED = re.compile(r"^\s*(?:- )?record:\s*[\"']?([A-Za-z_:][A-Za-z0-9_:]*)", re.MULTILINE)
COMMENT = re.compile(r"^\s*#.*$", re.MULTILINE)
GROUP = re.compile(r"^\s*(?:- )?name:.*$", re.MULTILINE)


def known_names() -> set[str]:
    """Every series of the catalogue; a summary has two."""
    names = {entry.name for entry in CATALOGUE if entry.kind != "summary"}
    summaries = {entry.name for entry in CATALOGUE if entry.kind == "summary"}
    return names | {f"{name}{end}" for name in summaries for end in ("_sum", "_count")}


def used_names(text: str) -> set[str]:
    """Words of a rule file that are names of ours, in expressions and in templates."""
    bare = GROUP.sub("", COMMENT.sub("", text))
    return {word for word in WORD.findall(bare) if "holdfast_" in word}


def unknown_names(texts: Mapping[str, str], known: Iterable[str]) -> list[str]:
    """One line for each name that neither the catalogue nor a rule of these files makes.

    texts: name of a file -> its content.
    """
    recorded = {name for text in texts.values() for name in RECORDED.findall(text)}
    there = {*known, *recorded}
    return [
        f"{file}: {name} is no metric of Holdfast{_like(name, there)}"
        for file, text in texts.items()
        for name in sorted(used_names(text) - there)
    ]


def _like(name: str, there: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, sorted(there), n=1)
    return f" (do you mean {near[0]}?)" if near else ""


# promtool and amtool, where they are installed: what they say of rules, tests and routes.

PATIENCE_S = 300.0
"""All tests that come with Holdfast take half a minute of a core, and on a busy machine twice that
or more."""

PACKAGES = {"promtool": "prometheus", "amtool": "prometheus-alertmanager"}
"""Program -> Debian's package."""


@dataclass(frozen=True)
class Said:
    """What a program made of it. `ok` None: it is not installed."""

    what: str
    ok: bool | None
    lines: Sequence[str] = ()


def ask(what: str, program: str, *arguments: str | Path) -> Said:
    """Run it over files; its output where it did not like them."""
    path = shutil.which(program)
    if path is None:
        package = PACKAGES[program]
        return Said(what, None, [f"{program} is not installed (Debian: apt-get install {package})"])
    try:
        done = subprocess.run(
            [path, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Said(what, False, [f"{program}: {error}"])
    told = (done.stdout + done.stderr).splitlines()
    return Said(what, done.returncode == 0, [] if done.returncode == 0 else told)


# The rule files that a person gave: read, and laid out so that promtool can read them too.


@dataclass(frozen=True)
class RuleText:
    """A file, and what Prometheus would read of it: all, or the rules of each object in it."""

    path: Path
    whole: str
    parts: Sequence[str]

    @property
    def is_plain(self) -> bool:
        """Whether Prometheus reads it as it is."""
        return list(self.parts) == [self.whole]


def read_given(path: Path) -> RuleText:
    """BadInput where there is no text."""
    text = read(path)
    return RuleText(path, text, rules_within(text) if is_of_kubernetes(text) else [text])


def is_empty(text: str) -> bool:
    """Whether comments are all that is in it."""
    lines = (line.strip() for line in text.splitlines())
    return all(line in ("", "---", "...") or line.startswith("#") for line in lines)


def read(path: Path) -> str:
    """A file's text; BadInput where there is none."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise BadInput(f"can't read {path}: {why}") from None


@contextmanager
def laid_out(rules: Sequence[RuleText]) -> Iterator[dict[Path, Path]]:
    """Files for promtool -> those of the person: the rules of objects get some of their own."""
    with tempfile.TemporaryDirectory(prefix="holdfast-alerts-") as folder:
        files: dict[Path, Path] = {}
        for rule in rules:
            if rule.is_plain:
                files[rule.path] = rule.path
                continue
            for part in rule.parts:
                file = Path(folder) / f"{len(files)}.yaml"
                file.write_text(part)
                files[file] = rule.path
        yield files


def told_of(said: Said, files: dict[Path, Path]) -> Said:
    """The same with the person's file where promtool names ours."""
    lines = list(said.lines)
    for ours, theirs in files.items():
        lines = [line.replace(str(ours), str(theirs)) for line in lines]
    return replace(said, lines=lines)


# Which files a person gave to be checked: rules, their tests, and what Alertmanager reads.

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


# `holdfast alerts check`: whether rules, their tests and routes hold, by promtool and amtool.

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


@click.group()
def alerts() -> None:
    """Write out the rules for Prometheus, the routes for Alertmanager and the runbooks; check them.

    \b
      holdfast alerts export --out alerting --dashboard-url https://grafana.internal
      holdfast alerts export --format kubernetes | kubectl apply -f -
      holdfast alerts check                           what comes with Holdfast
      holdfast alerts check my-rules.yaml             and what you made of it
    """


for command in (export_command, check_command):
    alerts.add_command(command)
