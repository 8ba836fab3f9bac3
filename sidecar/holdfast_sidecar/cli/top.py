"""`holdfast top`: finds who tells of the job, and shows it, on a screen or once as text."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from holdfast.contract import environment
from holdfast_sidecar.cli import find_job as sidecar_addresses
from holdfast_sidecar.cli import find_job as store_away
from holdfast_sidecar.cli.find_job import FoundJob, NoSuchJob, find_job
from holdfast_sidecar.cli.options import FiniteRange, settings_options
from holdfast_sidecar.cli.tui.http_client import Access, AccessRefused, Away, ViewSource, address_of
from holdfast_sidecar.cli.tui.panes import frame
from holdfast_sidecar.cli.tui.sources import SidecarSource, SourceWatch, StoreSource, replay
from holdfast_sidecar.cli.tui.state import Latest, ViewState
from holdfast_sidecar.cli.tui.text import suited
from holdfast_sidecar.config.loading import Effective
from holdfast_sidecar.config.paths import state_root
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.export.live.view import LiveView
from holdfast_sidecar.export.status import exists

HOW_TO_GET_IT = (
    "holdfast top draws with Textual, which is not installed: pip install 'holdfast[top]', or see "
    "one picture with --once"
)

WIDTH = 100
"""Of a picture that goes to no terminal; COLUMNS says another one."""

LEAST_WIDTH = 40


class NobodyTells(click.ClickException):
    """The job may live, but nobody of it answers; exit code 1."""

    exit_code = 1


@click.command()
@click.option("--job", envvar=environment.JOB, metavar="NAME", help="Default: the only one here.")
@click.option("--once", is_flag=True, help="Print one picture as plain text; needs no Textual.")
@click.option("--json", "as_json", is_flag=True, help="Print the view: one JSON object, one line.")
@click.option("--filter", "words", default="", metavar="WORDS", help="Only rows with these words.")
@click.option("--ascii", "wants_ascii", is_flag=True, help="Draw without signs beyond ASCII.")
@click.option(
    "--every",
    "every_s",
    type=FiniteRange(0.2, 3600.0),
    default=1.0,
    metavar="SECONDS",
    help="How often to look; more seldom over a bad line. Default: 1.",
)
@click.option("--url", metavar="URL", help="A sidecar's address, when it can't be found from here.")
@click.option("--token-file", metavar="FILE", help="File with the token that sidecars ask for.")
@click.option("--ca-file", metavar="FILE", help="Authorities to believe when sidecars speak TLS.")
@click.option("--replay", "recording", metavar="FILE", help="Show views that --json printed.")
@settings_options
def top(
    effective: Effective,
    job: str | None,
    once: bool,
    as_json: bool,
    words: str,
    wants_ascii: bool,
    every_s: float,
    url: str | None,
    token_file: str | None,
    ca_file: str | None,
    recording: str | None,
) -> None:
    """Watch a job live: ranks x time, phases, step times, findings, incidents, goodput.

    Asks the sidecar of this machine, or the leader that it names, so it works while Redis is away.
    Keys: ? tells all of them. Changes nothing.

    \b
      holdfast top
      holdfast top --job chargpt --filter node-7
      holdfast top --once                               one picture, for scripts and bad lines
      holdfast top --json >> views.jsonl                record; --replay views.jsonl shows it

    \b
    Exit code: 0 somebody has seen enough
               1 nobody of the job answers (--once, --json)
               2 something you gave is wrong, or there is no such job
    """
    is_screen = not (once or as_json)
    if is_screen:
        _need_a_screen()
    served = effective.settings.sidecar
    access = Access(token_file or served.token_file, ca_file or "", served.tls_cert_file)
    source = _source(effective, job, url, recording, access)
    choice = ViewState(filter=words)
    if is_screen:
        _show(source, choice, wants_ascii, every_s)
    else:
        view = _view_now(source)
        click.echo(_as_json(view) if as_json else _as_text(view, choice, wants_ascii))


def _need_a_screen() -> None:
    if importlib.util.find_spec("textual") is None:
        raise BadInput(HOW_TO_GET_IT)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise BadInput("holdfast top needs a terminal; --once prints one picture, --json the data")


def _source(
    effective: Effective, job: str | None, url: str | None, recording: str | None, access: Access
) -> ViewSource:
    if recording is not None:
        return replay(Path(recording))
    if url is not None:
        address = address_of(url)
        return SidecarSource(job or "", lambda: [address], access, here=lambda: [address])
    try:
        return _of_job(effective, job, access)
    except NoSuchJob as error:
        raise BadInput(error.format_message()) from None


def _of_job(effective: Effective, job: str | None, access: Access) -> ViewSource:
    """Sidecars of this machine first: they answer whatever becomes of Redis."""
    here = sidecar_addresses.jobs_here(state_root(effective.settings.paths))
    known = sidecar_addresses.only_one(here) if job is None else job
    if known is not None and known in here:
        return _sidecars(effective, known, access)
    found = find_job(effective, job)
    source = _sidecars(effective, found.job, access)
    return source if _answers(source) else _of_store(found)


def _sidecars(effective: Effective, job: str, access: Access) -> ViewSource:
    def here() -> Sequence[str]:
        return list(sidecar_addresses.addresses_here(state_root(effective.settings.paths) / job))

    return SidecarSource(job, lambda: _look_again(effective, job, here()), access, here=here)


def _look_again(effective: Effective, job: str, here: Sequence[str]) -> Sequence[str]:
    """Where the job's sidecars are now; Away with the reason why there are none."""
    if here:
        return here
    try:
        known = sidecar_addresses.addresses_known(find_job(effective, job))
    except (BadInput, click.ClickException) as error:
        words = error.format_message() if isinstance(error, click.ClickException) else str(error)
        raise Away(words) from None
    if not known:
        raise Away(f"no sidecar of job {job!r} is known")
    return known


def _answers(source: ViewSource) -> bool:
    try:
        source.read()
    except AccessRefused as error:
        raise BadInput(str(error)) from None
    except Away:
        return False
    return True


def _of_store(found: FoundJob) -> ViewSource:
    """Where no sidecar answers; NoSuchJob or NoAnswer where the store does not, either."""
    if not exists(store_away.read_view(found)):
        raise store_away.unknown(found)
    return StoreSource(found.job, found.open_store(), found.where)


def _view_now(source: ViewSource) -> LiveView:
    try:
        return source.read()
    except AccessRefused as error:
        raise BadInput(str(error)) from None
    except Away as error:
        raise NobodyTells(str(error)) from None


def _as_json(view: LiveView) -> str:
    return json.dumps(dataclasses.asdict(view), allow_nan=False)


def _as_text(view: LiveView, choice: ViewState, wants_ascii: bool) -> str:
    width = max(shutil.get_terminal_size((WIDTH, 24)).columns, LEAST_WIDTH)
    return "\n".join(frame(view, choice, width, suited(sys.stdout.encoding, wants_ascii)))


def _show(source: ViewSource, choice: ViewState, wants_ascii: bool, every_s: float) -> None:
    from holdfast_sidecar.cli.tui.screen import TopApp

    first = _first_look(source)
    watch = SourceWatch(source, every_s, first)
    watch.start()
    TopApp(watch, suited(sys.stdout.encoding, wants_ascii), choice).run(mouse=False)
    watch.stop()


def _first_look(source: ViewSource) -> Latest:
    """Before the screen is taken over, so that what can be mended is said in a line."""
    try:
        return Latest(source.read(), source.name)
    except AccessRefused as error:
        raise BadInput(str(error)) from None
    except Away as error:
        return Latest().unanswered(str(error), time.monotonic())
