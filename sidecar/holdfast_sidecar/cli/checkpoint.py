"""`holdfast checkpoint`: ask for one now, see what there is, verify every byte."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click

from holdfast_sidecar.checkpoint.ledger import StoredCheckpoint
from holdfast_sidecar.cli.checkpoint_inspect import prune_command, show_command, verify_command
from holdfast_sidecar.cli.checkpoint_lookup import (
    CheckpointListing,
    age,
    look,
    plan_command,
    state_of,
)
from holdfast_sidecar.cli.find_job import FoundJob, find_job
from holdfast_sidecar.cli.options import dir_option, job_option, json_option, settings_options
from holdfast_sidecar.cli.requests import ask
from holdfast_sidecar.cli.tables import ProgressLine, size, table
from holdfast_sidecar.config.loading import Effective, read_seconds
from holdfast_sidecar.records.checkpoint import CheckpointOrder, LedgerEntry, SavedPart
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.formatting import span
from holdfast_sidecar.records.plan import TERMINAL, Plan, Request
from holdfast_sidecar.records.reports import NodeReport
from holdfast_sidecar.store.protocol import CURRENT, Section, Store, StoreUnavailable, View

# Following a request for a checkpoint: how far it is, and what became of it.

LOOK_S = 0.25
"""People notice nothing shorter; a write wakes us sooner anyway."""

SAVES_NOWHERE = "the job saves nowhere: it was started without --checkpoint-dir"

COPIED = frozenset({"copied", "saving", "saved"})
"""States of a rank that has got to the step."""


@dataclass(frozen=True)
class RequestResult:
    """What became of a request."""

    is_complete: bool
    identifier: str = ""
    step: int = 0
    path: str = ""
    reason: str = ""


def follow_checkpoint(
    store: Store, found: FoundJob, request: str, patience_s: float, progress: ProgressLine
) -> RequestResult:
    """Tell what changes until the request was met or refused."""
    end_s = time.monotonic() + patience_s
    while True:
        try:
            state = look_at_request(store.read(), request)
        except StoreUnavailable as error:
            if found.server_is_gone():
                return RequestResult(False, reason=f"job {found.job} has ended")
            state = f"waiting for Redis at {found.where} ({error})"
        if isinstance(state, RequestResult):
            _take_back(store, request, state)
            return state
        progress.tell(state)
        if time.monotonic() >= end_s:
            late = f"not within {span(patience_s)} (last: {state}); it is still asked for"
            return RequestResult(False, reason=late)
        store.wait(min(LOOK_S, max(end_s - time.monotonic(), 0.0)))


def look_at_request(view: View, request: str) -> RequestResult | str:
    """What became of the request, or how far it is."""
    ledger = (decode(LedgerEntry, text) for text in view.section(Section.LEDGER).values())
    for entry in ledger:
        if entry is not None and request in entry.answers:
            return RequestResult(True, entry.identifier, entry.step, entry.path)
    waiting = decode(Request, view.section(Section.REQUESTS).get(request, ""))
    order = decode(CheckpointOrder, view.section(Section.CHECKPOINT).get(CURRENT, ""))
    if order is not None and request not in order.answers:
        order = None
    if order is not None and order.state in ("armed", "writing"):
        return how_far(order, view)
    if order is not None and order.state == "complete":
        return RequestResult(True, order.identifier, order.step, order.path)
    if waiting is not None and waiting.refused:
        known = (order.identifier, order.step) if order is not None else ("", 0)
        return RequestResult(False, *known, reason=waiting.refused)
    if order is not None:
        if waiting is None:
            return RequestResult(False, order.identifier, order.step, reason=order.reason)
        return f"again, further ahead: {order.reason}"
    return _unanswered(view, is_waiting=waiting is not None)


def _unanswered(view: View, is_waiting: bool) -> RequestResult | str:
    """Of a request that no order speaks of."""
    plan = decode(Plan, view.section(Section.PLAN).get(CURRENT, ""))
    if plan is not None and plan.state in TERMINAL:
        how = f": {plan.message}" if plan.message else ""
        return RequestResult(False, reason=f"the job has ended{how}")
    if not is_waiting:
        lost = "the coordination server has lost the request, as after a restart: ask again"
        return RequestResult(False, reason=lost)
    if not view.lease.candidate:
        return "waiting for a leader"
    if saves_nowhere(view):
        return RequestResult(False, reason=SAVES_NOWHERE)
    order = decode(CheckpointOrder, view.section(Section.CHECKPOINT).get(CURRENT, ""))
    if order is not None and order.state == "writing":
        return f"waiting until the checkpoint of step {order.step} is written, which came before"
    return "waiting for all ranks to be stepping"


def saves_nowhere(view: View) -> bool:
    """Whether a leader said that the job has no directory for checkpoints."""
    nodes = (decode(NodeReport, text) for text in view.section(Section.NODES).values())
    told = [n.checkpoint.dir for n in nodes if n is not None and n.checkpoint is not None]
    return bool(told) and not any(told)


def how_far(order: CheckpointOrder, view: View) -> str:
    """An order on its way, in words."""
    parts = list(_parts(order, view))
    states = [state for part in parts for state in part.states.values()]
    if order.state == "armed" and not any(part.total_bytes for part in parts):
        plan = decode(Plan, view.section(Section.PLAN).get(CURRENT, ""))
        ranks = plan.world_size if plan is not None else len(states)
        there = sum(state in COPIED for state in states)
        return f"copying step {order.step}: {there} of {ranks} ranks"
    done, total = sum(p.done_bytes for p in parts), sum(p.total_bytes for p in parts)
    writers = len(set(order.writers.values())) or len(parts)
    if len(parts) == writers and all(part.files for part in parts):
        return f"sealing step {order.step}"
    if not total:
        return f"writing step {order.step}"
    return f"writing step {order.step}: {size(done)} of {size(total)}"


def _parts(order: CheckpointOrder, view: View) -> Iterator[SavedPart]:
    for text in view.section(Section.NODES).values():
        node = decode(NodeReport, text)
        part = None if node is None else node.saved
        if part is not None and part.identifier == order.identifier:
            yield part


def _take_back(store: Store, request: str, outcome: RequestResult) -> None:
    """A refusal that was read is of no more use."""
    if outcome.is_complete:
        return
    try:
        store.report(Section.REQUESTS, request, None, wake=False)
    except StoreUnavailable:
        return


# `holdfast checkpoint now`: asks the job's leader for one, and follows it until it is there.


@click.command("now")
@job_option
@click.option("--wait/--no-wait", default=True, help="Wait until it is complete (the default).")
@click.option("--timeout", default="5m", show_default=True, help="How long to wait for it.")
@json_option
@settings_options
def now_command(
    effective: Effective, job: str | None, wait: bool, timeout: str, as_json: bool
) -> None:
    """Ask a running job for a checkpoint now, and wait until it is complete.

    A request that comes while a checkpoint is on its way, and not yet copied, is met by that one.

    \b
      holdfast checkpoint now
      holdfast checkpoint now --job chargpt --timeout 30m --json
      holdfast checkpoint now --no-wait

    \b
    Exit code: 0 it is complete (with --no-wait: it is asked for)
               1 it came to nothing (the reason is printed), or not in time
               2 something you gave is wrong
               3 there is no such job
    """
    patience_s = read_seconds("--timeout", timeout)
    found = find_job(effective, job)
    store = found.open_store()
    progress = ProgressLine(sys.stderr, is_quiet=as_json)
    try:
        request = ask(found, store, "checkpoint")
        if not wait:
            click.echo(json.dumps({"request": request}) if as_json else f"asked for: {request}")
            return
        outcome = follow_checkpoint(store, found, request, patience_s, progress)
    finally:
        progress.close()
        store.close()
    if as_json:
        click.echo(json.dumps(asdict(outcome)))
    elif outcome.is_complete:
        click.echo(f"checkpoint {outcome.identifier} at step {outcome.step}: {outcome.path}")
    else:
        click.echo(f"holdfast: no checkpoint: {outcome.reason}", err=True)
    sys.exit(0 if outcome.is_complete else 1)


# Which checkpoint goes back to which, drawn beside their rows: `*` the living line, `o` others.


@dataclass(frozen=True)
class TreeNode:
    """A checkpoint in the tree. `at`: later is larger."""

    identifier: str
    parent: str
    at: float


@dataclass(frozen=True)
class TreeRow:
    """One line: a checkpoint, and what is drawn before it."""

    identifier: str
    drawing: str


@dataclass(frozen=True)
class _Branch:
    """A chain of checkpoints in one column, from row `first` to the row where it meets `fork`."""

    nodes: tuple[TreeNode, ...]
    first: int
    last: int
    fork: str
    """The checkpoint that it grew from, where that is still there; else empty."""


def draw(nodes: Sequence[TreeNode], living: Collection[str]) -> list[TreeRow]:
    """Rows, newest first, each after all that go back to it. `living`: the line to resume from."""
    ordered = list(_children_first(nodes))
    branches = _branches(ordered, living)
    columns = _columns(branches)
    column_of = {
        node.identifier: column
        for branch, column in zip(branches, columns, strict=True)
        for node in branch.nodes
    }
    width = 2 * max(columns, default=0) + 1
    grid = [[" "] * width for _ in ordered]
    for branch, column in zip(branches, columns, strict=True):
        for row in range(branch.first, branch.last):
            grid[row][2 * column] = "|"
        if branch.fork:
            cells = grid[branch.last]
            for at in range(2 * column_of[branch.fork] + 1, 2 * column):
                cells[at] = "-" if cells[at] == " " else cells[at]
            cells[2 * column] = "'"
    for row, node in enumerate(ordered):
        mark = "*" if node.identifier in living else "o"
        grid[row][2 * column_of[node.identifier]] = mark
    return [
        TreeRow(node.identifier, "".join(cells).rstrip())
        for node, cells in zip(ordered, grid, strict=True)
    ]


def _children_first(nodes: Sequence[TreeNode]) -> Iterator[TreeNode]:
    """Newest first, but never a checkpoint before one that goes back to it."""
    left = sorted(nodes, key=lambda node: node.at, reverse=True)
    while left:
        parents = {node.parent for node in left}
        # Parents that go round in a circle can't come from us, and must not hang the command.
        chosen = next((node for node in left if node.identifier not in parents), left[0])
        left.remove(chosen)
        yield chosen


def _branches(ordered: Sequence[TreeNode], living: Collection[str]) -> list[_Branch]:
    """The living line first, then each other chain by its newest row."""
    rows = {node.identifier: row for row, node in enumerate(ordered)}
    by_identifier = {node.identifier: node for node in ordered}
    taken: set[str] = set()
    branches = []
    for start in sorted(ordered, key=lambda n: (n.identifier not in living, rows[n.identifier])):
        chain: list[TreeNode] = []
        node: TreeNode | None = start
        while node is not None and node.identifier not in taken:
            chain.append(node)
            taken.add(node.identifier)
            node = by_identifier.get(node.parent)
        if chain:
            fork = "" if node is None else node.identifier
            last = rows[fork] if fork else rows[chain[-1].identifier]
            branches.append(_Branch(tuple(chain), rows[start.identifier], last, fork))
    return branches


def _columns(branches: Sequence[_Branch]) -> list[int]:
    """The leftmost column for each branch that no other one needs in its rows."""
    columns: list[int] = []
    for number, branch in enumerate(branches):
        used = {
            column
            for other, column in zip(branches[:number], columns, strict=True)
            if other.first <= branch.last and branch.first <= other.last
        }
        columns.append(next(c for c in range(number + 1) if c not in used))
    return columns


# `holdfast checkpoint list`: what there is, and which one a restart would try first.


@click.command("list")
@job_option
@dir_option
@json_option
@settings_options
def list_command(effective: Effective, job: str | None, given: str | None, as_json: bool) -> None:
    """List the checkpoints on storage, newest first, and what a restart would try.

    \b
      holdfast checkpoint list
      holdfast checkpoint list --dir s3://bucket/run7

    Read from storage alone, so it works without the job. The drawing on the left shows which one
    goes back to which (`*` the living line, `o` branches that were left); `resume` is the order in
    which a restart would try them.
    """
    shelf = look(effective, job, given)
    if as_json:
        click.echo(json.dumps(_document(shelf), indent=2))
    else:
        click.echo("\n".join(_lines(shelf, time.time())))


def _document(shelf: CheckpointListing) -> dict[str, Any]:
    return {
        "dir": shelf.root,
        "checkpoints": [
            {
                **asdict(kept.entry()),
                "job": kept.manifest.job,
                "resume": shelf.resume.get(kept.identifier),
                "why_not": shelf.why_not(kept),
            }
            for kept in shelf.kept
        ],
        "unbelieved": shelf.unbelieved,
        "torn": shelf.torn,
        "left_alone": shelf.left_alone,
    }


def _lines(shelf: CheckpointListing, now_unix_s: float) -> Iterator[str]:
    if not shelf.kept:
        yield shelf.nothing
    for job in shelf.jobs:
        if len(shelf.jobs) > 1:
            yield f"job {job}"
        yield _table(shelf, job, now_unix_s)
    for name, why in sorted(shelf.unbelieved.items()):
        yield f"not believed: {name} ({why})"
    if shelf.torn:
        yield f"not sealed (torn, or being written now): {', '.join(shelf.torn)}"
    yield from shelf.left_alone


def _table(shelf: CheckpointListing, job: str, now_unix_s: float) -> str:
    kept = {one.identifier: one for one in shelf.of(job)}
    nodes = [
        TreeNode(one.identifier, one.goes_back_to(kept), one.manifest.created_unix_s)
        for one in kept.values()
    ]
    headings = ("", "step", "resume", "state", "trigger", "age", "size", "ranks", "attempt", "name")
    rows = [
        (row.drawing, *_row(kept[row.identifier], shelf, now_unix_s))
        for row in draw(nodes, shelf.living)
    ]
    return table(headings, rows)


def _row(kept: StoredCheckpoint, shelf: CheckpointListing, now_unix_s: float) -> tuple[str, ...]:
    manifest, place = kept.manifest, shelf.resume.get(kept.identifier)
    return (
        str(manifest.step),
        "" if place is None else str(place),
        state_of(kept, shelf),
        manifest.trigger or "-",
        age(manifest.created_unix_s, now_unix_s),
        size(manifest.size_bytes),
        str(manifest.world_size),
        str(manifest.attempt),
        kept.folder.name,
    )


@click.group()
def checkpoint() -> None:
    """Ask a job for a checkpoint; look at those there are, verify and remove them.

    \b
      holdfast checkpoint now                         and wait until it is complete
      holdfast checkpoint list --dir /ckpt            what there is, and what a restart would try
      holdfast checkpoint show 1200                   all about one
      holdfast checkpoint plan                        how often they come, and why
      holdfast checkpoint verify --dir /ckpt 1200     read every byte of one
      holdfast checkpoint prune --keep 2              remove what nobody needs
    """


for command in (
    now_command,
    list_command,
    show_command,
    verify_command,
    plan_command,
    prune_command,
):
    checkpoint.add_command(command)
