"""Runs the user's command for a node that is kept outside, or let in again: Slurm's drain, say.

What stands in the plan about a node comes off the wire, so it only ever becomes part of one word of
the command that this node's own settings name; no shell reads it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import IO

from holdfast.contract import environment
from holdfast.contract.ending_processes import signal_group
from holdfast.contract.permit import own_group
from holdfast_sidecar.config import timeouts
from holdfast_sidecar.config.paths import NAME, Paths
from holdfast_sidecar.config.settings import NodesSettings, Settings
from holdfast_sidecar.export.job_record import RecordKeeping
from holdfast_sidecar.incidents.bundle import BundleKeeping, read_kernel_lines
from holdfast_sidecar.incidents.collect import EvidenceKeeping
from holdfast_sidecar.incidents.storage import IncidentStore
from holdfast_sidecar.linux.files import KernelTrees
from holdfast_sidecar.performance.traces import NodeTraces
from holdfast_sidecar.policy.budget import PLANNED, Warrant, refusal, warranted
from holdfast_sidecar.policy.modes import mode_of_job
from holdfast_sidecar.ranks.ending import ActionRunner, end_culprits, release
from holdfast_sidecar.ranks.observation import RankHistory
from holdfast_sidecar.ranks.page import (
    Pages,
    RankPage,
    arm_checkpoint,
    arm_trace,
    order_stop,
    withdraw_checkpoint,
    withdraw_trace,
)
from holdfast_sidecar.records.plan import DONE, HookRun, Plan
from holdfast_sidecar.store.orders import Orders
from holdfast_sidecar.store.protocol import Section

logger = logging.getLogger(__name__)

KEPT = 32
"""Outcomes that are told on: the leader reads them within a heartbeat or two."""

WORDS = 200
"""Of a reason: what Slurm shows of one in a line, and no page of evidence."""

LAST_WORDS_BYTES = 400
"""Of what a command that failed wrote last."""

PATIENCE_S = 5.0
"""At the end of the sidecar: within what a launcher leaves it before it kills it."""

POLL_S = 0.02

KILLED_S = 0.2
"""One that hangs in the kernel is left to it: the loop goes on."""


class HookFailed(Exception):
    """The command could not be run, ended badly or took too long."""


@dataclass
class _Running:
    run: HookRun
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    until_s: float


@dataclass
class NodeHooks:
    """Looked at once per tick; a command never holds the loop."""

    settings: NodesSettings
    outcomes: dict[str, str] = field(default_factory=dict)
    """Key of a run -> `done`, or what went wrong."""
    _running: dict[str, _Running] = field(default_factory=dict)

    def follow(self, wanted: Iterable[HookRun], runner: ActionRunner, now_s: float) -> None:
        """Start what this sidecar is to run, once, and see what has ended. `now_s`: any clock."""
        for key in list(self._running):
            self._end(key, runner, now_s)
        for run in wanted:
            if not self._is_known(run):
                self._begin(run, runner, now_s)

    def conclude(self, wanted: Iterable[HookRun], runner: ActionRunner) -> None:
        """Start what is still to be started and give all a moment: nobody may be left to do it."""
        began_s = time.monotonic()
        self.follow(wanted, runner, began_s)
        while self._running and time.monotonic() - began_s < PATIENCE_S:
            time.sleep(POLL_S)
            for key in list(self._running):
                self._end(key, runner, time.monotonic())

    def _is_known(self, run: HookRun) -> bool:
        return bool(run.outcome) or run.key in self.outcomes or run.key in self._running

    def _begin(self, run: HookRun, runner: ActionRunner, now_s: float) -> None:
        try:
            self._running[run.key] = _start(run, self.settings, now_s)
        except (OSError, ValueError) as error:
            self._note(run, runner, f"it can't be run: {error}")

    def _end(self, key: str, runner: ActionRunner, now_s: float) -> None:
        running = self._running[key]
        code = running.process.poll()
        if code is None and now_s < running.until_s:
            return
        del self._running[key]
        wrong = "" if code == 0 else _what_went_wrong(running, code, self.settings.hook_timeout_s)
        running.output.close()
        self._note(running.run, runner, wrong)

    def _note(self, run: HookRun, runner: ActionRunner, wrong: str) -> None:
        self.outcomes[run.key] = wrong or DONE
        for old in list(self.outcomes)[:-KEPT]:
            del self.outcomes[old]
        action = partial(_conclude, run, wrong)
        if run.event == "quarantine":
            runner.run("on_quarantine", action)
        else:
            runner.run("on_return", action)


def words_of(run: HookRun, settings: NodesSettings) -> list[str]:
    """The command, word by word. Raises ValueError where it can't be split, or is empty."""
    command = settings.on_quarantine if run.event == "quarantine" else settings.on_return
    given = {"node": run.node, "reason": run.reason, "gpu": run.gpu, "remedy": run.remedy}
    return [_filled(word, given) for word in timeouts.split(command)]


def _filled(word: str, given: Mapping[str, str]) -> str:
    """In one go: what is put in is not looked through for more to put in."""
    filled = timeouts.PLACE.sub(lambda place: _plain(given[place[1]]), word)
    if filled.startswith("-") and not word.startswith("-"):
        raise ValueError(f"{filled!r} would be read as an option")
    return filled


def _plain(value: str) -> str:
    """In one line, without what ends a string in C: whatever else it says, it is one word."""
    return "".join(c if c.isprintable() else " " for c in value)[:WORDS]


def _start(run: HookRun, settings: NodesSettings, now_s: float) -> _Running:
    """What it writes may be told: it gets no secret of ours to write."""
    words = words_of(run, settings)
    with contextlib.ExitStack() as opened:
        output = opened.enter_context(tempfile.TemporaryFile())
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={k: v for k, v in os.environ.items() if k not in environment.NEVER_FOR_RANKS},
            start_new_session=True,
        )
        opened.pop_all()
    return _Running(run, process, output, now_s + settings.hook_timeout_s)


def _what_went_wrong(running: _Running, code: int | None, limit_s: float) -> str:
    """In words; who is not over yet is ended with all that it started."""
    if code is None:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            signal_group(own_group(running.process))
            running.process.wait(timeout=KILLED_S)
        return f"it took longer than {limit_s:g} s"
    size = running.output.seek(0, os.SEEK_END)
    running.output.seek(max(0, size - LAST_WORDS_BYTES))
    said = _plain(" ".join(running.output.read().decode(errors="replace").split()))
    how = f"exit code {code}" if code > 0 else f"ended by signal {-code}"
    return f"{how}: {said}" if said else how


def _conclude(run: HookRun, wrong: str) -> bool:
    """An action as the others are, so that it is logged and counted as they are."""
    if wrong:
        raise HookFailed(f"node {run.node}: {wrong}")
    logger.info("on_%s was run for node %s: %s", run.event, run.node, run.reason)
    return True


# What the loop does about the newest orders, in turn: arm, stop, keep evidence, end a culprit.


@dataclass
class Actions:
    """The acting half of the loop. Every deed is safe to repeat at the next tick."""

    node: str
    settings: Settings
    places: Paths
    pages: Pages
    chronicle: IncidentStore
    evidence: EvidenceKeeping
    runner: ActionRunner = field(default_factory=ActionRunner)
    releases_ranks: bool = False
    """No launcher of ours ends ranks that hold SIGTERM."""
    bundles: BundleKeeping = field(init=False)
    traces: NodeTraces = field(init=False)
    hooks: NodeHooks = field(init=False)
    _record: RecordKeeping = field(init=False)
    _incident: str = ""
    _incident_since_s: float = 0.0
    _refused: str = ""

    def __post_init__(self) -> None:
        self._record = RecordKeeping(self.places, self.settings.checkpoint.dir)
        self.hooks = NodeHooks(self.settings.nodes)
        self.traces = NodeTraces(self.places)
        log = KernelTrees(self.settings.paths.machine_root).kernel_log
        self.bundles = BundleKeeping(
            self.node,
            self.places,
            self.settings,
            self.evidence,
            self.runner,
            partial(read_kernel_lines, path=log),
        )

    @property
    def evidence_for(self) -> str:
        """Incident whose evidence this node has on disk."""
        return self.evidence.kept.incident

    def act(self, orders: Orders, histories: Mapping[int, RankHistory], now_s: float) -> None:
        """Do what the orders ask of this node, whose ranks were last seen as the histories tell.
        `now_s` is CLOCK_MONOTONIC."""
        plan, held = orders.plan, self.pages.held()
        self.hooks.follow(own_hooks(orders), self.runner, now_s)
        self.evidence.facts.follow(held)
        self._keep_what_is_known(orders, is_last=False)
        if orders.checkpoint is not None:
            self._run("arm_checkpoint", arm_checkpoint, orders.checkpoint, held, int(now_s * 1e9))
            self._run("withdraw_checkpoint", withdraw_checkpoint, orders.checkpoint, held)
        if orders.store_up:  # a leader that can't be heard has not taken its order back
            self._run("withdraw_trace", withdraw_trace, orders.trace, held)
        if orders.trace is not None:
            self._run("arm_trace", arm_trace, orders.trace, held, int(now_s * 1e9))
        if self.releases_ranks and self.settings.sidecar.mode == "act":
            self._run("release_ranks", release, plan, held, histories)
        if plan is None:
            return
        grace_s = self.settings.sidecar.grace_s
        self._run("order_stop", order_stop, plan, held, int(now_s * 1e9), grace_s)
        if plan.incident and (plan.state == "evidence" or has_failed(plan)):
            self._keep_evidence(plan, held, now_s)
        self._end_culprits(orders, plan, held, now_s)

    def conclude(self, orders: Orders) -> None:
        """Keep what must be known once this sidecar has left."""
        self.hooks.conclude(own_hooks(orders), self.runner)
        self.bundles.conclude(orders)
        self.remember(orders)

    def remember(self, orders: Orders) -> None:
        """Write down what is known last. Once before a store that is away may cost its timeouts,
        within which a launcher kills its sidecar, and again once the leader wrote its last."""
        self._keep_what_is_known(orders, is_last=True)

    def _keep_what_is_known(self, orders: Orders, is_last: bool) -> None:
        if orders.view is not None:
            incidents = orders.view.section(Section.INCIDENTS)
            self._run("keep_incidents", self.chronicle.keep, incidents)
            sections = orders.view.sections
            self._run("keep_job_record", self._record.keep, sections, is_last, orders.nodes)

    def _run(self, name: str, action: Callable[..., bool], *given: object) -> bool:
        return self.runner.run(name, partial(action, *given))

    def _keep_evidence(self, plan: Plan, held: list[RankPage], now_s: float) -> None:
        if plan.state == "evidence" and self._incident != plan.incident:
            self._incident, self._incident_since_s, self._refused = plan.incident, now_s, ""
        # The identifier comes off the wire and becomes a directory.
        if NAME.fullmatch(plan.incident):
            self.evidence.keep(plan, held, now_s)

    def _end_culprits(self, orders: Orders, plan: Plan, held: list[RankPage], now_s: float) -> None:
        patience_s = self.settings.policy.evidence_timeout_s
        waited_s = now_s - self._incident_since_s
        is_given_up = self.evidence.tries.are_over(plan.incident, patience_s, now_s)
        warrant = Warrant(
            node=self.node,
            mode=mode_of_job(self.settings, plan.cause),
            evidence_for=self.evidence_for,
            everyone_kept=plan.state == "ended"
            or waited_s > patience_s
            or have_all_kept(plan, orders, {self.node} if is_given_up else ()),
            is_evidence_given_up=is_given_up,
        )
        refused = refusal(orders, warrant)
        if not refused:
            self._run("end_culprits", end_culprits, partial(warranted, orders, warrant), held)
        elif warrant.everyone_kept and self._is_news(plan, refused):
            logger.info("incident %s: nothing is ended: %s", plan.incident, refused)
            self._refused = refused

    def _is_news(self, plan: Plan, refused: str) -> bool:
        return bool(plan.incident) and plan.incident == self._incident and refused != self._refused


def own_hooks(orders: Orders) -> list[HookRun]:
    """Commands for nodes that this sidecar is to run."""
    hooks = [] if orders.plan is None else orders.plan.hooks
    return [run for run in hooks if run.by and run.by == orders.candidate]


def has_failed(plan: Plan) -> bool:
    """Whether the attempt was ended for a fault: what its ranks left is worth keeping."""
    return plan.state in ("ended", "stopped") and plan.cause not in PLANNED


def have_all_kept(plan: Plan, orders: Orders, but: Collection[str] = ()) -> bool:
    """Whether every member's sidecar, but these, says that its evidence of this incident is on
    disk."""
    others = (member.node for member in plan.members if member.node not in but)
    reports = (orders.node_report(node) for node in others)
    return all(one is not None and one.evidence_for == plan.incident for one in reports)
