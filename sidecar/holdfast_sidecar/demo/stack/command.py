"""`python -m testing.demo_alerting`: who was called, with what words, and how soon."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from holdfast_sidecar.cli.table import BAD, GOOD, paint, table
from holdfast_sidecar.config.settings import EXIT_CODE, BadInput
from holdfast_sidecar.demo.stack.outcome import Verdict
from holdfast_sidecar.demo.stack.performance import Performance, Wishes
from holdfast_sidecar.demo.stack.requirements import find_programs, missing
from holdfast_sidecar.demo.stack.scenario import BRISK, SAVE_EVERY_STEPS
from holdfast_sidecar.demo.stage import stage
from holdfast_sidecar.demo.workspace import open_workspace

HEADINGS = ("what", "after the kill")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="The result as JSON; progress on stderr.")
@click.option(
    "--keep",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Keep logs and files in this new directory, and all of it up until Ctrl-C.",
)
@click.option("--brisk", is_flag=True, help="Waits of rules and routes are a fifth as long.")
@click.pass_context
def alerting(context: click.Context, as_json: bool, keep: Path | None, brisk: bool) -> None:
    """Kill a node under real Prometheus and Alertmanager, and be called.

    They watch two nodes that have no spare, with the rules, routes and scrape block that come with
    Holdfast. A node is killed; a webhook of ours is called, as whoever is on call would be; the
    node comes back, and the webhook is told that it is over. That takes some four minutes with the
    shipped waits, two with --brisk. Both programs have to be installed; what is missing is told,
    with how to get it.

    Exit code 1 when nobody was paged, or more than once, or without node and cause, or it was not
    resolved.
    """
    found = find_programs(shutil.which)
    for line in missing(found):
        click.echo(f"holdfast: {line}", err=True)
    if missing(found):
        context.exit(EXIT_CODE)
    wishes = Wishes(found, BRISK if brisk else 1.0, keep is not None)
    with stage(keep, as_json) as (shown, started):

        def show(verdict: Verdict) -> None:
            """While all is up: its addresses lead somewhere only then."""
            shown.close()
            told = json.dumps(verdict.as_json(), indent=2) if as_json else stack_page(verdict)
            click.echo(told)

        with open_workspace(keep, SAVE_EVERY_STEPS) as workspace:
            verdict = Performance(wishes, workspace, shown, started, show).perform()
    context.exit(1 if verdict.problems else 0)


def stack_page(verdict: Verdict) -> str:
    """The page, its times, and where to look while all is up."""
    lines = ["", *_page(verdict), "", table(HEADINGS, _times(verdict)), *_waits(verdict), ""]
    if verdict.addresses is not None:
        shown = dataclasses.asdict(verdict.addresses)
        lines += [*(f"{what:12}  {url}" for what, url in shown.items()), ""]
    lines += [paint(f"failed: {problem}", BAD) for problem in verdict.problems]
    return "\n".join([*lines, f"{verdict.seconds:.0f} s in all"])


def _page(verdict: Verdict) -> Iterator[str]:
    page = verdict.page
    if page is None:
        yield "nobody was paged"
        return
    yield paint(f"paged: {page.name}", BAD if verdict.problems else GOOD)
    yield f"  {page.summary}"
    yield f"  run {page.run}, node {page.node or '-'}, cause {verdict.cause or '-'}"
    yield f"  {page.description}"
    yield f"  runbook {page.runbook}"
    yield f"tickets: {', '.join(verdict.tickets) or 'none'}"


def _times(verdict: Verdict) -> list[list[str]]:
    return [
        ["somebody was paged", _seconds(verdict.paged_s)],
        ["the node was started again", _seconds(verdict.back_s)],
        ["every rank stepped again", _seconds(verdict.recovered_s)],
        ["the page was resolved", _seconds(verdict.resolved_s)],
    ]


def _waits(verdict: Verdict) -> list[str]:
    if verdict.slower == 1:
        return []
    return [f"the waits of rules and routes are {verdict.slower:g} times shorter than the shipped"]


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} s"


if __name__ == "__main__":
    try:
        alerting()
    except BadInput as error:
        click.echo(f"holdfast: {error}", err=True)
        sys.exit(EXIT_CODE)
