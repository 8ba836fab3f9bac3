"""`holdfast dashboards`: into a Grafana, into files; incidents as marks in its graphs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from holdfast.contract import environment
from holdfast.contract import environment as names
from holdfast.contract.owned import owned_file
from holdfast.contract.removing import unlink
from holdfast_sidecar.cli.find_job import NoSuchJob
from holdfast_sidecar.cli.grafana.api import (
    AnnotationChange,
    AnnotationServer,
    marks,
    plan_marks,
    tags_of,
)
from holdfast_sidecar.cli.grafana.client import open_client, parse_address
from holdfast_sidecar.cli.grafana.push import (
    OWN_FOLDER,
    Dashboard,
    PushPlan,
    Step,
    check_version,
    push,
    read_boards,
    survey,
)
from holdfast_sidecar.cli.options import (
    dry_run_option,
    grafana_option,
    settings_options,
    token_option,
)
from holdfast_sidecar.cli.recall import Recollection, recall_all, remark
from holdfast_sidecar.config.loading import Effective
from holdfast_sidecar.config.paths import asset
from holdfast_sidecar.config.settings import BadInput

# What a push would do, or did, in lines. Pure.

LINES_A_BOARD = 40
"""More than these of one dashboard are counted, not listed."""

DONE = {"create": "created", "change": "changed", "same": "unchanged"}


def dry_page(plan: PushPlan) -> str:
    """Line by line: `+` is missing there, `-` too much, `~` otherwise there than it should be."""
    lines = [f"create folder {plan.folder.title} ({plan.folder.uid})"] if plan.makes_folder else []
    for step in plan.steps:
        lines += [f"{step.word:7} {step.board.uid}  {step.board.title}", *_changes(step)]
    return "\n".join([*lines, _sum(plan, would=True)])


def done_page(plan: PushPlan, url: str) -> str:
    """What became of each, and where to look."""
    lines = [
        f"{DONE[step.word]:9} {step.board.title}: {url}/d/{step.board.uid}" for step in plan.steps
    ]
    return "\n".join([*lines, _sum(plan, would=False)])


def _changes(step: Step) -> Iterator[str]:
    yield from (f"  {line}" for line in step.changes[:LINES_A_BOARD])
    if (more := len(step.changes) - LINES_A_BOARD) > 0:
        yield f"  … and {more} more"


def _sum(plan: PushPlan, would: bool) -> str:
    due = len(plan.due)
    if not due:
        return f"all {len(plan.steps)} dashboards are there as they should be; nothing to push"
    where = f"in {plan.folder.title}" if plan.folder.uid else "at the top"
    verb = "would be pushed" if would else "pushed"
    return f"{due} of {len(plan.steps)} dashboards {verb} {where}"


# The dashboards that this installation has.


def shipped_folder() -> Path:
    """Where they lie; BadInput where this installation has none."""
    try:
        return asset("dashboards")
    except FileNotFoundError as error:
        raise BadInput(str(error)) from None


def shipped_boards() -> list[Dashboard]:
    """All of them; BadInput where they can't be read."""
    folder = shipped_folder()
    try:
        boards = read_boards(folder)
    except (OSError, ValueError, KeyError) as error:
        raise BadInput(f"the dashboards in {folder} can't be read: {error}") from None
    if not boards:
        raise BadInput(f"no dashboards in {folder}: install Holdfast anew")
    return boards


# `holdfast dashboards export`: the files, for provisioning or an import by hand.


@click.command("export")
@click.option(
    "--out", default="holdfast-dashboards", metavar="DIR", help="Default: holdfast-dashboards."
)
def export_command(out: str) -> None:
    """Write the dashboards into a folder, as Grafana 10 to 13 import them, with provisioning files.

    No Grafana, token or extra package is needed. Files that are there by these names are replaced.

    \b
      holdfast dashboards export
      holdfast dashboards export --out /etc/grafana/dashboards/holdfast
    """
    boards, source = shipped_boards(), shipped_folder()
    names = [f"{board.uid}.json" for board in boards]
    names += sorted(f"provisioning/{path.name}" for path in source.glob("provisioning/*.yaml"))
    folder = Path(out).expanduser()
    try:
        for name in names:
            _write(folder / name, (source / name).read_bytes())
    except OSError as error:
        raise BadInput(
            f"cannot write into {folder}: {error.strerror}; choose another --out"
        ) from None
    click.echo("\n".join(str(folder / name) for name in names))


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(path)
    finally:
        unlink(owned_file(unfinished), missing_ok=True)


# A Grafana's token, from a file or the environment: never on a command line, never printed.


def read_token(file_name: str | None, environment: Mapping[str, str]) -> str:
    """The token; BadInput where there is none, or nothing that could be one."""
    if file_name is None:
        token = environment.get(names.GRAFANA_TOKEN, "").strip()
        where = names.GRAFANA_TOKEN
    else:
        token, where = _read(Path(file_name).expanduser()), file_name
    if not token:
        raise BadInput(
            f"no token for Grafana: make a service account there and give its token in "
            f"--token-file or {names.GRAFANA_TOKEN}"
        )
    if not token.isascii() or len(token.split()) > 1:
        raise BadInput(f"what {where} holds is no token: it must be one word, in one line")
    return token


def _read(path: Path) -> str:
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise BadInput(f"cannot read the token file {path}: {reason}") from None
    if not token:
        raise BadInput(f"the token file {path} is empty: write the token into it")
    return token


# `holdfast dashboards annotate`: a job's incidents as regions in Grafana's graphs.

ANNOTATE_LIMIT_S = 600.0
"""Thousands of incidents at a tenth of a second each; called again it does the rest."""


@click.command("annotate")
@grafana_option
@token_option
@click.option("--job", envvar=environment.JOB, metavar="NAME", help="Default: all jobs here.")
@dry_run_option
@settings_options
def annotate_command(
    effective: Effective, grafana: str, token_file: str | None, job: str | None, dry_run: bool
) -> None:
    """Mark the incidents of a job in Grafana's graphs, from their first sign to their end.

    Each with its cause and its story in a sentence. Again after a while it adds what is new and
    brings to an end what is over; twice in a row it changes nothing.

    \b
      holdfast dashboards annotate --grafana https://grafana:3000 --token-file token --job chargpt
    """
    address = parse_address(grafana)
    token = read_token(token_file, os.environ)
    try:
        records = recall_all(effective, job)
    except NoSuchJob as error:
        raise BadInput(error.format_message()) from None
    remark(*records)
    server = open_client(address, token, ANNOTATE_LIMIT_S)
    check_version(server.version())
    due = [(record, _due(server, record)) for record in records]
    for record, changes in due:
        if not dry_run:
            _carry_out(server, changes)
        click.echo(_line(record, changes, dry_run))


def _due(server: AnnotationServer, record: Recollection) -> list[AnnotationChange]:
    wanted = marks(record.job, record.incidents)
    return plan_marks(wanted, server.annotations(tags_of(record.job))) if wanted else []


def _carry_out(server: AnnotationServer, changes: Sequence[AnnotationChange]) -> None:
    """One after the other: each is whole by itself, and a second call does what is left."""
    for change in changes:
        if change.number is None:
            server.add(change.mark)
        else:
            server.change(change.number, change.mark)


def _line(record: Recollection, changes: Sequence[AnnotationChange], dry_run: bool) -> str:
    new = sum(change.number is None for change in changes)
    would = "would be " if dry_run else ""
    known = len(record.incidents) - len(changes)
    return (
        f"{record.job}: {new} incidents {would}marked, {len(changes) - new} {would}brought up to "
        f"date, {known} as they were"
    )


# `holdfast dashboards push`: what differs, and nothing else.

PUSH_LIMIT_S = 60.0
"""For sixteen requests at most, of which each takes a busy Grafana a second or two."""


@click.command("push")
@grafana_option
@token_option
@click.option(
    "--folder-uid",
    default=OWN_FOLDER.uid,
    metavar="UID",
    help=f"Default: {OWN_FOLDER.uid}, which is made; '' is the top.",
)
@click.option(
    "--data-source",
    default="",
    metavar="NAME|UID",
    help="Of type Prometheus; default: what is Grafana's default, and is chosen in the dashboards.",
)
@dry_run_option
def push_command(
    grafana: str, token_file: str | None, folder_uid: str, data_source: str, dry_run: bool
) -> None:
    """Create the dashboards in a Grafana (10 or newer), or bring them up to date there.

    Needs the extra `grafana` and a service account's token with the role Editor. Only what differs
    is pushed; everything that could stand in the way is asked first, and what can't be ended is put
    back.

    \b
      holdfast dashboards push --grafana https://grafana:3000 --token-file token --dry-run
      HOLDFAST_GRAFANA_TOKEN=… holdfast dashboards push --grafana https://example.org/grafana
      holdfast dashboards push --grafana http://localhost:3000 --folder-uid ml --data-source Mimir
    """
    address = parse_address(grafana)
    token = read_token(token_file, os.environ)
    boards = shipped_boards()
    server = open_client(address, token, PUSH_LIMIT_S)
    plan = survey(server, boards, folder_uid, data_source)
    if dry_run:
        click.echo(dry_page(plan))
        return
    push(server, plan)
    click.echo(done_page(plan, address.url))


@click.group()
def dashboards() -> None:
    """Bring the dashboards into a Grafana, or into files; mark incidents in its graphs.

    \b
      holdfast dashboards push --grafana https://grafana:3000 --dry-run
      holdfast dashboards push --grafana https://grafana:3000 --token-file token
      holdfast dashboards export --out grafana
      holdfast dashboards annotate --grafana https://grafana:3000 --job chargpt
    """


for command in (push_command, export_command, annotate_command):
    dashboards.add_command(command)
