"""`holdfast trace`: torch profiler traces of the same steps of chosen ranks, side by side."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from holdfast.contract import environment
from holdfast.contract.owned import owned_file
from holdfast.contract.removing import unlink
from holdfast_sidecar.cli.find_job import find_job
from holdfast_sidecar.cli.options import settings_options
from holdfast_sidecar.cli.requests import (
    LOST,
    Settled,
    ask,
    at_end,
    follow,
    look_up,
    refuse,
    running_plan,
    take_back,
)
from holdfast_sidecar.cli.tables import size, table
from holdfast_sidecar.config.loading import Effective, read_seconds
from holdfast_sidecar.config.paths import expand
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.performance import traces
from holdfast_sidecar.performance.traces import TraceRow
from holdfast_sidecar.policy import tracing
from holdfast_sidecar.policy.attached import attached_run
from holdfast_sidecar.policy.cluster import Cluster, parse_cluster
from holdfast_sidecar.policy.tracing import why_no_trace
from holdfast_sidecar.records.checkpoint import TracedRank, TraceOrder
from holdfast_sidecar.records.plan import Plan

# Where the files of a trace lie, and where who asked for them wants them.


@dataclass(frozen=True)
class Collected:
    """A rank's trace, and where it lies now."""

    rank: TracedRank
    path: str
    """On this machine; empty: it lies on another."""
    trouble: str = ""
    """Why it is not where it was wanted."""


def collect(one: TracedRank, order: TraceOrder, folder: Path | None) -> Collected:
    """Put a file of this machine into the folder that was named."""
    source = Path(one.path)
    if not one.path or one.host != socket.gethostname() or not source.is_file():
        return Collected(one, "")
    if folder is None:
        return Collected(one, str(source))
    target = folder / f"step-{order.step:08d}-{source.name}"
    try:
        link_or_copy(source, target)
    except OSError as error:
        why = error.strerror or str(error)
        return Collected(one, str(source), f"it can't be put into {folder}: {why}")
    return Collected(one, str(target))


def link_or_copy(source: Path, target: Path) -> None:
    """A second name for the file where that can be had; in place of what was there."""
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        try:
            if source.stat().st_uid != os.geteuid():
                raise PermissionError  # a second name for it could not be told from another's file
            os.link(source, draft)
        except OSError:
            shutil.copyfile(source, draft)
        draft.replace(target)
    finally:
        # Half a copy; or a second name, as replacing a file by itself does nothing.
        unlink(owned_file(draft), missing_ok=True)


def make_folder(out: str) -> Path:
    """The folder that was named; BadInput where there can be none."""
    folder = expand(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"--out {out}: {error}") from None
    return folder


# A trace of several ranks as a page for people and as data for scripts. Pure, except for the time
# of telling.


def page(job: str, order: TraceOrder, collected: Sequence[Collected]) -> str:
    """For people."""
    compared = in_order(order)
    steps = (
        f"{order.steps} steps from step {order.step}" if order.steps > 1 else (f"step {order.step}")
    )
    lines = [f"job {job}, {steps}: {order.why}", ""]
    columns = [f"rank {one.rank}" for one in compared]
    for title, rows in (
        ("part of the step, ms", traces.parts(compared)),
        ("operator, ms of its own", traces.operators(compared)),
    ):
        if rows:
            more = ["difference"] if len(compared) > 1 else []
            lines += [table([title, *columns, *more], [_cells(row) for row in rows]), ""]
    if len(compared) > 1 and (told := traces.verdict(compared)):
        lines += [told, ""]
    lines += [_where(one) for one in collected]
    lines += ["", "open them in https://ui.perfetto.dev or chrome://tracing"]
    return "\n".join(lines)


def in_order(order: TraceOrder) -> list[TracedRank]:
    """The ranks that are set side by side and have something to show, the slow one first."""
    by_rank = {one.rank: one for one in order.taken if one.state == "saved"}
    return [by_rank[rank] for rank in order.compared if rank in by_rank]


def _cells(row: TraceRow) -> list[str]:
    cells = ["-" if us is None else f"{us / 1e3:.2f}" for us in row.us]
    if len(row.us) > 1:
        cells.append(f"{round(row.difference_us / 1e3, 2) + 0.0:+.2f}")
    return [row.name, *cells]


def _where(one: Collected) -> str:
    rank = one.rank
    if not rank.path:
        return f"rank {rank.rank}: no trace: {why_no_trace(rank)}"
    note = f"; {rank.error}" if rank.error else ""
    kept = f"{size(rank.size_bytes)}, its loop stood for {rank.kept_s * 1e3:.0f} ms{note}"
    if one.path:
        trouble = f"; {one.trouble}" * bool(one.trouble)
        return f"rank {rank.rank}: {one.path} ({kept}){trouble}"
    return f"rank {rank.rank}: {rank.host}:{rank.path} (on another node; {kept})"


def spell(order: TraceOrder, collected: Sequence[Collected]) -> str:
    """For scripts."""
    compared = in_order(order)
    return json.dumps(
        {
            "step": order.step,
            "steps": order.steps,
            "attempt": order.attempt,
            "why": order.why,
            "compared": [one.rank for one in compared],
            "parts_us": {row.name: list(row.us) for row in traces.parts(compared)},
            "operators_us": {row.name: list(row.us) for row in traces.operators(compared)},
            "ranks": [
                {**asdict(one.rank), "collected": one.path, "trouble": one.trouble}
                for one in collected
            ],
            "at_unix_s": time.time(),
        },
        indent=2,
    )


MOST_STEPS = 100
"""A step of a large model makes megabytes; more of them are no better to look at."""

GRACE_S = 10.0
"""So much longer than the leader, who knows better why it came to nothing."""


@click.command()
@click.option("--job", envvar=environment.JOB, metavar="NAME", help="Default: the only one here.")
@click.option("--ranks", "named", metavar="N,N…", help="These ranks, the first beside the others.")
@click.option("--slow", is_flag=True, help="The slowest rank and a healthy peer (the default).")
@click.option("--all", "everyone", is_flag=True, help="Every rank.")
@click.option("--steps", default=1, show_default=True, help="So many steps in a row.")
@click.option(
    "--at", "at_step", default=0, metavar="STEP", help="From this step on; default: soon."
)
@click.option("--out", metavar="DIR", help="Put the files of this machine there, too.")
@click.option(
    "--timeout", default="2m", show_default=True, metavar="TIME", help="How long to wait for them."
)
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
@settings_options
def trace(
    effective: Effective,
    job: str | None,
    named: str | None,
    slow: bool,
    everyone: bool,
    steps: int,
    at_step: int,
    out: str | None,
    timeout: str,
    as_json: bool,
) -> None:
    """Take torch profiler traces of the same step of several ranks, and set them side by side.

    Without options: the slowest rank as Holdfast judges it, and a healthy peer of the same role.
    The script needs no change. The ranks that are meant run slower in the traced steps, and stand
    still for a moment before and after them (docs/trace.md has figures); nothing is kept running.
    Files are in the format of chrome://tracing and https://ui.perfetto.dev, which open them packed.

    \b
      holdfast trace
      holdfast trace --ranks 5,0 --steps 3 --out traces
      holdfast trace --all --at 12000 --timeout 1h --json

    \b
    Exit code: 0 the traces are there
               1 not all of them are (the reason is printed)
               2 something you gave is wrong
               3 there is no such job
    """
    patience_s = read_seconds("--timeout", timeout)
    if sum((bool(named), slow, everyone)) > 1:
        raise BadInput("--ranks, --slow and --all: give one of them")
    if not 1 <= steps <= MOST_STEPS:
        raise BadInput(f"--steps {steps}: between 1 and {MOST_STEPS}")
    if at_step < 0 or patience_s <= 0:
        raise BadInput("--at can't be negative, and --timeout must be longer than nothing")
    ranks = parse_ranks(named)
    folder = None if out is None else make_folder(out)
    found = find_job(effective, job)
    store = found.open_store()
    kept: list[TraceOrder] = []
    try:
        watched = attached_run(parse_cluster(look_up(found, store)))
        plan = watched or running_plan(found, store)
        ranks = choose_here(plan, ranks, everyone)
        request = ask(
            found,
            store,
            "trace",
            for_s=patience_s,
            of_watched=True,
            ranks=ranks,
            steps=steps,
            at_step=at_step,
        )
        try:
            settled = follow(
                store,
                found,
                lambda seen: look(seen, request, kept),
                patience_s + GRACE_S,
                lambda seen: end(seen, request, kept),
            )
        finally:
            # Also when this is interrupted: nobody waits for it any more then.
            take_back(store, found, request)
    finally:
        store.close()
    if not settled.is_so:
        refuse(found, "traced", settled.words)
    order = kept[-1]
    collected = [collect(one, order, folder) for one in order.taken]
    click.echo(spell(order, collected) if as_json else page(found.job, order, collected))
    sys.exit(0 if all(one.rank.path and not one.trouble for one in collected) else 1)


def parse_ranks(text: str | None) -> list[int]:
    """Rank numbers as they are given; BadInput when they are none."""
    if text is None:
        return []
    try:
        ranks = [int(part) for part in text.split(",")]
    except ValueError:
        raise BadInput(f"--ranks {text!r}: numbers with commas between them, as 0,5") from None
    if any(rank < 0 for rank in ranks):
        raise BadInput(f"--ranks {text!r}: a rank is never negative")
    return list(dict.fromkeys(ranks))


def choose_here(plan: Plan, ranks: Sequence[int], everyone: bool) -> list[int]:
    """What is known here of whom to trace; none: the leader chooses."""
    if unknown := [rank for rank in ranks if rank >= plan.world_size]:
        raise BadInput(
            f"there is no rank {unknown[0]}: the job has ranks 0 to {plan.world_size - 1}"
        )
    return list(range(plan.world_size)) if everyone else list(ranks)


def look(cluster: Cluster, request: str, kept: list[TraceOrder]) -> Settled | str:
    """What became of the request, or how far it is; an order that was taken is put into `kept`."""
    order = cluster.trace
    if order is None or order.request != request:
        return _unanswered(cluster, request)
    if order.state == "taken":
        kept.append(order)
        return Settled(True, "taken")
    if order.state == "void":
        return Settled(False, order.reason)
    traced = tracing.traced_ranks(order, cluster.nodes)
    return how_far(order, traced, cluster)


def end(cluster: Cluster, request: str, kept: list[TraceOrder]) -> Settled | None:
    """What the job's end makes of the request: files that are there stay; None: it goes on."""
    ended, order = at_end(cluster), cluster.trace
    if ended is None or order is None or order.request != request:
        return ended
    traced = tracing.traced_ranks(order, cluster.nodes)
    told = order.taken or [traced.get(rank, TracedRank(rank)) for rank in order.ranks]
    if not any(one.state == "saved" for one in told):
        return ended
    kept.append(dataclasses.replace(order, state="taken", taken=list(told)))
    return Settled(True, "taken")


def _unanswered(cluster: Cluster, request: str) -> Settled | str:
    waiting = cluster.requests.get(request)
    if waiting is None:
        return Settled(False, LOST)
    if waiting.refused:
        return Settled(False, waiting.refused)
    plan = cluster.plan or attached_run(cluster)
    if plan is not None:
        ranks = cluster.ranks(plan)
        if why := tracing.obstacle(plan, ranks):
            return f"waiting: {why}"
        if cluster.trace is None and tracing.awaits_times(waiting, ranks):
            return "waiting for a whole step of every rank, to tell who is slow"
    return "waiting for the leader, or for another trace"


def how_far(order: TraceOrder, traced: dict[int, TracedRank], cluster: Cluster) -> str:
    """An order on its way, in words."""
    states = [traced[rank].state if rank in traced else "none" for rank in order.ranks]
    if all(state == "saved" for state in states):
        return "comparing"
    if any(state == "saved" for state in states):
        return f"writing: {states.count('saved')} of {len(states)} files are there"
    if any(state == "saving" for state in states):
        return f"tracing step {order.step}: {states.count('saving')} of {len(states)} ranks"
    plan = cluster.plan or attached_run(cluster)
    ranks = {} if plan is None else cluster.ranks(plan)
    behind = min((rank.step for rank in ranks.values()), default=0)
    return f"waiting for step {order.step}: the job is at step {behind}"
