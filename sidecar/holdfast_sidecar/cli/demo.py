"""`holdfast demo`: see a real job survive, on this machine, in two minutes."""

from __future__ import annotations

import json
from pathlib import Path

import click

from holdfast_sidecar.cli.demonstration.job import open_workspace, scenario
from holdfast_sidecar.cli.demonstration.run import perform
from holdfast_sidecar.cli.demonstration.screen import stage
from holdfast_sidecar.cli.demonstration.verdict import Outcome, Verdict
from holdfast_sidecar.cli.tables import BAD, GOOD, paint, table

HEADINGS = (
    "done to the job",
    "to",
    "at step",
    "detected after",
    "culprit",
    "recovered after",
    "steps lost",
)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="The result as JSON; progress on stderr.")
@click.option(
    "--keep",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Keep logs, checkpoints and evidence in this new directory.",
)
@click.pass_context
def demo(context: click.Context, as_json: bool, keep: Path | None) -> None:
    """Train a small GPT on two nodes of this machine, and hurt it.

    Two nodes with two ranks each and a spare node train a character-level GPT on the text of
    Python's own standard library. One rank is killed, one is frozen, a checkpoint is asked for,
    and a whole node is killed. At the end the weights are compared, bit by bit, with those of the
    same training under plain torchrun that nothing disturbed, and `holdfast explain` tells of each
    fault what it knows.

    Exit code 1 when anything failed: not noticed, wrong culprit, not recovered, other weights.
    """
    with stage(keep, as_json) as (shown, started), open_workspace(keep) as workspace:
        verdict = perform(scenario(), workspace, shown, started)
    if as_json:
        click.echo(json.dumps(verdict.as_json(), indent=2))
    else:
        click.echo(page(verdict, keep is not None))
    context.exit(1 if verdict.all_problems else 0)


def page(verdict: Verdict, keeps: bool = False) -> str:
    """The table, the proof, and what Holdfast says of each fault. `keeps`: its files stay."""
    lines = ["", table(HEADINGS, [_row(outcome) for outcome in verdict.outcomes]), ""]
    if verdict.identical:
        proof = "the final weights are bit-identical to those of the undisturbed run"
        lines += [paint(proof, GOOD), f"sha256 {verdict.survived_weights}"]
    elif verdict.survived_weights:
        lines += [
            f"undisturbed  sha256 {verdict.undisturbed_weights}",
            f"with faults  sha256 {verdict.survived_weights}",
        ]
    for story in verdict.stories:
        lines += ["", f"$ holdfast explain {story.incident}", "", story.text or story.problem]
    if verdict.stories and not keeps:
        lines += ["", "the files named here are removed with the rest; --keep DIR keeps them"]
    lines += ["", *(paint(f"failed: {problem}", BAD) for problem in verdict.all_problems)]
    return "\n".join([*lines, f"{verdict.seconds:.0f} s in all"])


def _row(outcome: Outcome) -> list[str]:
    return [
        outcome.event,
        outcome.where,
        str(outcome.step),
        _seconds(outcome.detected_s),
        outcome.culprit,
        _seconds(outcome.recovered_s),
        "-" if outcome.steps_lost is None else str(outcome.steps_lost),
    ]


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"
