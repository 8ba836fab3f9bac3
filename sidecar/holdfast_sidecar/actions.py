"""What the loop does about the newest orders, in turn: arm, stop, keep evidence, end a culprit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

from holdfast_sidecar.config.paths import NAME, Places
from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.controller.node_hooks import NodeHooks
from holdfast_sidecar.export.job_record import RecordKeeping
from holdfast_sidecar.incidents.bundle import BundleKeeping
from holdfast_sidecar.incidents.collect import EvidenceKeeping
from holdfast_sidecar.incidents.kernel_lines import read_kernel_lines
from holdfast_sidecar.incidents.storage import Chronicle
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
from holdfast_sidecar.records.plan import HookRun, Plan
from holdfast_sidecar.store.orders import Orders
from holdfast_sidecar.store.protocol import Section

logger = logging.getLogger(__name__)


@dataclass
class Deeds:
    """The acting half of the loop. Every deed is safe to repeat at the next tick."""

    node: str
    settings: Settings
    places: Places
    pages: Pages
    chronicle: Chronicle
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
