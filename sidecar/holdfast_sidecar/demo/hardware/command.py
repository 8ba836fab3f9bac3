"""`python -m testing.demo_hardware`: the stories on a terminal."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from holdfast_sidecar.cli.table import BAD, paint, table
from holdfast_sidecar.config.settings import EXIT_CODE, BadInput
from holdfast_sidecar.demo.fake_nvml.build import CompilerMissingError
from holdfast_sidecar.demo.fake_nvml.layout import MOST_GPUS
from holdfast_sidecar.demo.hardware.outcome import Verdict
from holdfast_sidecar.demo.hardware.performance import perform
from holdfast_sidecar.demo.hardware.scenario import NEVER_STEPS
from holdfast_sidecar.demo.stage import stage
from holdfast_sidecar.demo.workspace import open_workspace

HEADINGS = ("done to the hardware", "at step", "told after", "as", "tied to", "and")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="The result as JSON; progress on stderr.")
@click.option(
    "--keep",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Keep logs and evidence in this new directory.",
)
@click.option(
    "--gpus",
    metavar="N",
    type=click.IntRange(1, MOST_GPUS),
    default=8,
    show_default=True,
    help="Fake GPUs, and ranks, per node.",
)
@click.pass_context
def hardware(context: click.Context, as_json: bool, keep: Path | None, gpus: int) -> None:
    """Train on fake GPUs, and let the hardware fail.

    A node trains with a rank on each GPU, each of which is a fake: a driver's library in C that
    the real nvidia-ml-py loads, and a /sys of its own with RDMA ports. A link flaps, a GPU gets
    too hot, NVML hangs, a GPU counts a storm of corrected errors and then falls off the bus. Each
    is told, tied to its rank, and acted on; a spare node takes over in the end.

    Exit code 1 when anything failed.
    """
    with stage(keep, as_json) as (shown, started), open_workspace(keep, NEVER_STEPS) as workspace:
        try:
            verdict = perform(gpus, workspace, shown, started)
        except CompilerMissingError as error:
            raise BadInput(f"the fake GPUs are compiled here: {error}") from None
    click.echo(json.dumps(verdict.as_json(), indent=2) if as_json else page(verdict))
    context.exit(1 if verdict.all_problems else 0)


def page(verdict: Verdict) -> str:
    """What was done to the hardware, and what Holdfast made of it."""
    rows = [
        [r.fault, str(r.step), _seconds(r.told_s), r.told_as, r.tied_to, r.done]
        for r in verdict.rows
    ]
    lines = ["", table(HEADINGS, rows), ""]
    lines += [paint(f"failed: {problem}", BAD) for problem in verdict.all_problems]
    return "\n".join([*lines, f"{verdict.seconds:.0f} s in all"])


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"


if __name__ == "__main__":
    try:
        hardware()
    except BadInput as error:
        click.echo(f"holdfast: {error}", err=True)
        sys.exit(EXIT_CODE)
