"""`holdfast demo`: see a real job survive, on this machine, in two minutes."""

from __future__ import annotations

import json
import logging
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from holdfast_sidecar.cli.stack_page import stack_page
from holdfast_sidecar.cli.table import BAD, GOOD, paint, table
from holdfast_sidecar.config.settings import EXIT_CODE, BadInput
from holdfast_sidecar.demo.fake_nvml.build import CompilerMissingError
from holdfast_sidecar.demo.fake_nvml.layout import MOST_GPUS
from holdfast_sidecar.demo.hardware.outcome import Verdict as HardwareVerdict
from holdfast_sidecar.demo.hardware.performance import perform as perform_on_fakes
from holdfast_sidecar.demo.hardware.scenario import NEVER_STEPS
from holdfast_sidecar.demo.outcome import Outcome, Verdict
from holdfast_sidecar.demo.performance import perform
from holdfast_sidecar.demo.rehearsal import rehearse
from holdfast_sidecar.demo.scenario import scenario
from holdfast_sidecar.demo.screen import Screen, screen
from holdfast_sidecar.demo.stack.outcome import Verdict as StackVerdict
from holdfast_sidecar.demo.stack.performance import Performance, Wishes
from holdfast_sidecar.demo.stack.requirements import Requirement, find_programs, missing
from holdfast_sidecar.demo.stack.scenario import BRISK, SAVE_EVERY_STEPS
from holdfast_sidecar.demo.workspace import open_workspace

HEADINGS = (
    "done to the job",
    "to",
    "at step",
    "detected after",
    "culprit",
    "recovered after",
    "steps lost",
)
HARDWARE_HEADINGS = ("done to the hardware", "at step", "told after", "as", "tied to", "and")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="The result as JSON; progress on stderr.")
@click.option(
    "--keep",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Keep logs, checkpoints and evidence in this new directory; with --stack all of it stays "
    "up, too, until Ctrl-C.",
)
@click.option(
    "--gpus",
    metavar="N",
    type=click.IntRange(0, MOST_GPUS),
    default=0,
    help="Stories of failing hardware instead, on N GPUs per node that are none.",
)
@click.option(
    "--stack",
    is_flag=True,
    help="Somebody is called instead: Prometheus, Alertmanager and a node killed without a spare.",
)
@click.option(
    "--brisk", is_flag=True, help="With --stack: waits of rules and routes are a fifth as long."
)
@click.pass_context
def demo(
    context: click.Context, as_json: bool, keep: Path | None, gpus: int, stack: bool, brisk: bool
) -> None:
    """Train a small GPT on two nodes of this machine, and hurt it.

    Two nodes with two ranks each and a spare node train a character-level GPT on the text of
    Python's own standard library. One rank is killed, one is frozen, a checkpoint is asked for,
    and a whole node is killed. At the end the weights are compared, bit by bit, with those of the
    same training under plain torchrun that nothing disturbed, and `holdfast explain` tells of each
    fault what it knows.

    With --gpus 8 a node trains with eight ranks on eight GPUs, each of which is a fake: a driver's
    library in C that the real nvidia-ml-py loads, and a /sys of its own with RDMA ports. A link
    flaps, a GPU gets too hot, NVML hangs, a GPU counts a storm of corrected errors and then falls
    off the bus. Each is told, tied to its rank, and acted on; a spare node takes over in the end.

    With --stack real Prometheus and Alertmanager watch two nodes that have no spare, with the
    rules, routes and scrape block that come with Holdfast. A node is killed; a webhook of ours is
    called, as whoever is on call would be; the node comes back, and the webhook is told that it is
    over. That takes some four minutes with the shipped waits, two with --brisk. Both programs have
    to be installed; what is missing is told, with how to get it.

    Exit code 1 when anything failed: not noticed, wrong culprit, not recovered, other weights;
    nobody paged, or more than once, or without node and cause, or not resolved.
    """
    _refuse(keep, gpus, stack, brisk)
    found = _programs(context) if stack else {}
    rehearse()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    # As Ctrl-C does: leave through every `finally`, so that nothing stays behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    started = time.monotonic()
    shown = screen(sys.stderr if as_json else sys.stdout, started)
    wishes = Wishes(found, BRISK if brisk else 1.0, keep is not None)
    told: Told | None = None
    problems: Sequence[str]
    try:
        if stack:
            problems = _with_stack(wishes, keep, as_json, shown, started)
        elif gpus:
            told, problems = _with_hardware(gpus, keep, shown, started)
        else:
            told, problems = _with_kills(keep, shown, started)
    finally:
        shown.close()
    if told is not None:
        _print(told, as_json)
    context.exit(1 if problems else 0)


Told = tuple[dict[str, Any], str]
"""The verdict as JSON, and as a page."""


def _refuse(keep: Path | None, gpus: int, stack: bool, brisk: bool) -> None:
    """BadInput where what is asked for can't be."""
    if find_spec("torch") is None:
        raise BadInput("the demonstration trains: pip install 'holdfast[train,server]'")
    if stack and gpus:
        raise BadInput("--stack and --gpus are two demonstrations: give one of them")
    if brisk and not stack:
        raise BadInput("--brisk shortens the waits of --stack, which is not given")
    if keep is not None and keep.exists():
        raise BadInput(f"{keep} exists already; --keep wants a new directory")


def _programs(context: click.Context) -> dict[Requirement, str]:
    """Where Prometheus and Alertmanager are; without them the command ends, a line for each."""
    found = find_programs(shutil.which)
    for line in missing(found):
        click.echo(f"holdfast: {line}", err=True)
    if missing(found):
        context.exit(EXIT_CODE)
    return found


def _with_kills(keep: Path | None, shown: Screen, started: float) -> tuple[Told, Sequence[str]]:
    with open_workspace(keep) as workspace:
        verdict = perform(scenario(), workspace, shown, started)
    return (verdict.as_json(), page(verdict, keep is not None)), verdict.all_problems


def _with_stack(
    wishes: Wishes, keep: Path | None, as_json: bool, shown: Screen, started: float
) -> Sequence[str]:
    """Prints the verdict by itself: while all is up, as its addresses lead somewhere only then."""

    def show(verdict: StackVerdict) -> None:
        shown.close()
        _print((verdict.as_json(), stack_page(verdict)), as_json)

    with open_workspace(keep, SAVE_EVERY_STEPS) as workspace:
        return Performance(wishes, workspace, shown, started, show).perform().problems


def _print(told: Told, as_json: bool) -> None:
    click.echo(json.dumps(told[0], indent=2) if as_json else told[1])


def _with_hardware(
    gpus: int, keep: Path | None, shown: Screen, started: float
) -> tuple[Told, Sequence[str]]:
    try:
        with open_workspace(keep, NEVER_STEPS) as workspace:
            verdict = perform_on_fakes(gpus, workspace, shown, started)
    except CompilerMissingError as error:
        raise BadInput(f"the fake GPUs are compiled here: {error}") from None
    return (verdict.as_json(), hardware_page(verdict)), verdict.all_problems


def hardware_page(verdict: HardwareVerdict) -> str:
    """What was done to the hardware, and what Holdfast made of it."""
    rows = [
        [r.fault, str(r.step), _seconds(r.told_s), r.told_as, r.tied_to, r.done]
        for r in verdict.rows
    ]
    lines = ["", table(HARDWARE_HEADINGS, rows), ""]
    lines += [paint(f"failed: {problem}", BAD) for problem in verdict.all_problems]
    return "\n".join([*lines, f"{verdict.seconds:.0f} s in all"])


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
