"""Following a request for a checkpoint: how far it is, and what became of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from holdfast_sidecar.cli.finding_the_job import FoundJob
from holdfast_sidecar.cli.progress import ProgressLine
from holdfast_sidecar.cli.table import size
from holdfast_sidecar.records.checkpoint import CheckpointOrder, LedgerEntry, SavedPart
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.formatting import span
from holdfast_sidecar.records.plan import TERMINAL, Plan, Request
from holdfast_sidecar.records.reports import NodeReport
from holdfast_sidecar.store.protocol import CURRENT, Section, Store, StoreUnavailable, View

LOOK_S = 0.25
"""People notice nothing shorter; a write wakes us sooner anyway."""

SAVES_NOWHERE = "the job saves nowhere: it was started without --checkpoint-dir"

COPIED = frozenset({"copied", "saving", "saved"})
"""States of a rank that has got to the step."""


@dataclass(frozen=True)
class Outcome:
    """What became of a request."""

    is_complete: bool
    identifier: str = ""
    step: int = 0
    path: str = ""
    reason: str = ""


def follow(
    store: Store, found: FoundJob, request: str, patience_s: float, progress: ProgressLine
) -> Outcome:
    """Tell what changes until the request was met or refused."""
    end_s = time.monotonic() + patience_s
    while True:
        try:
            state = look(store.read(), request)
        except StoreUnavailable as error:
            if found.server_is_gone():
                return Outcome(False, reason=f"job {found.job} has ended")
            state = f"waiting for Redis at {found.where} ({error})"
        if isinstance(state, Outcome):
            _take_back(store, request, state)
            return state
        progress.tell(state)
        if time.monotonic() >= end_s:
            late = f"not within {span(patience_s)} (last: {state}); it is still asked for"
            return Outcome(False, reason=late)
        store.wait(min(LOOK_S, max(end_s - time.monotonic(), 0.0)))


def look(view: View, request: str) -> Outcome | str:
    """What became of the request, or how far it is."""
    ledger = (decode(LedgerEntry, text) for text in view.section(Section.LEDGER).values())
    for entry in ledger:
        if entry is not None and request in entry.answers:
            return Outcome(True, entry.identifier, entry.step, entry.path)
    waiting = decode(Request, view.section(Section.REQUESTS).get(request, ""))
    order = decode(CheckpointOrder, view.section(Section.CHECKPOINT).get(CURRENT, ""))
    if order is not None and request not in order.answers:
        order = None
    if order is not None and order.state in ("armed", "writing"):
        return how_far(order, view)
    if order is not None and order.state == "complete":
        return Outcome(True, order.identifier, order.step, order.path)
    if waiting is not None and waiting.refused:
        known = (order.identifier, order.step) if order is not None else ("", 0)
        return Outcome(False, *known, reason=waiting.refused)
    if order is not None:
        if waiting is None:
            return Outcome(False, order.identifier, order.step, reason=order.reason)
        return f"again, further ahead: {order.reason}"
    return _unanswered(view, is_waiting=waiting is not None)


def _unanswered(view: View, is_waiting: bool) -> Outcome | str:
    """Of a request that no order speaks of."""
    plan = decode(Plan, view.section(Section.PLAN).get(CURRENT, ""))
    if plan is not None and plan.state in TERMINAL:
        how = f": {plan.message}" if plan.message else ""
        return Outcome(False, reason=f"the job has ended{how}")
    if not is_waiting:
        lost = "the coordination server has lost the request, as after a restart: ask again"
        return Outcome(False, reason=lost)
    if not view.lease.candidate:
        return "waiting for a leader"
    if saves_nowhere(view):
        return Outcome(False, reason=SAVES_NOWHERE)
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


def _take_back(store: Store, request: str, outcome: Outcome) -> None:
    """A refusal that was read is of no more use."""
    if outcome.is_complete:
        return
    try:
        store.report(Section.REQUESTS, request, None, wake=False)
    except StoreUnavailable:
        return
