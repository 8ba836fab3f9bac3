"""Watching ranks without hooks from outside, and telling it on the console."""

from __future__ import annotations

import dataclasses
import logging
import os
import shlex
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import click

from holdfast.contract import environment, foreign_launch
from holdfast.contract.ending_processes import signal_handle
from holdfast.contract.owned import owned_file
from holdfast.contract.permit import NotPermitted
from holdfast.contract.removing import unlink
from holdfast_sidecar.actions import have_all_kept
from holdfast_sidecar.cli.attach_watch import (
    ENDINGS,
    AttachedJob,
    Console,
    leave_on_signal,
    open_attached_store,
    say,
)
from holdfast_sidecar.cli.options import serving_options, settings_options
from holdfast_sidecar.components.gpu.nvml.probe import open_gpu_probe
from holdfast_sidecar.components.gpu.ownership import busy_by_pid
from holdfast_sidecar.config.loading import Effective
from holdfast_sidecar.config.paths import NAME, places, state_root
from holdfast_sidecar.config.settings import OVERSLEPT_S, BadInput, Settings
from holdfast_sidecar.config.timeouts import MODES
from holdfast_sidecar.controller.coordinator import Coordinator
from holdfast_sidecar.incidents.collect import (
    WAIT_S,
    EvidenceTries,
    KeptEvidence,
    keep_outside_evidence,
)
from holdfast_sidecar.incidents.storage import IncidentStore
from holdfast_sidecar.linux.probe_runner import ProbeRunner
from holdfast_sidecar.linux.threads import start_thread
from holdfast_sidecar.policy.attached import obeyed
from holdfast_sidecar.policy.budget import Warrant, refusal, warranted
from holdfast_sidecar.policy.modes import mode_of_job
from holdfast_sidecar.ranks.ending import ActionRunner
from holdfast_sidecar.ranks.page import open_process
from holdfast_sidecar.ranks.unhooked import (
    OutsideHistory,
    OutsideLook,
    OutsideProbe,
    OutsideRank,
    find_outside_troubles,
    find_ranks,
    follow_outside,
)
from holdfast_sidecar.records.findings import Finding, Moment
from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.records.reports import RankReport
from holdfast_sidecar.startup import SidecarRecord, Site, await_place, lock_node, write_record
from holdfast_sidecar.store.orders import LocalState, Orders
from holdfast_sidecar.store.protocol import Section
from holdfast_sidecar.wiring import coordinate, open_storage_client

LOOK_S = 0.5
"""What is judged from outside lasts seconds at least."""


def watch_outside(watched: AttachedJob, pids: tuple[int, ...], match: str | None) -> int:
    """Watch these processes' ranks until they have ended; the exit code."""
    ranks = find_ranks(pids, match, os.getuid())
    if not ranks:
        asked = [*map(str, pids), *([repr(match)] if match else [])]
        raise BadInput(f"no process of yours is {', '.join(asked)}, so there is nothing to watch")
    where = places(watched.settings.paths, watched.job, watched.node)
    site = Site(watched.job, watched.node, where, watched.settings, attached=True)
    console = Console(say, "", time.monotonic())
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
    lock = lock_node(where)
    gpus = ProbeRunner(open_gpu_probe(site.settings.gpu), every_s=0.0)

    def busy(now_s: float) -> Mapping[int, float]:
        reading = gpus.read(now_s)
        return {} if reading is None else busy_by_pid(reading)

    kept = open_attached_store(site.settings.redis, site.job, where)
    try:
        predecessor = await_place(kept.store, site, lock.predecessor)
        write_record(where.sidecar_record, SidecarRecord(site.job, site.node, 0))
        coordinator = coordinate(site, kept.store, open_storage_client(site), predecessor)
        lock.pass_on(coordinator.incarnation)
        count = f"{len(ranks)} rank{'s' * (len(ranks) != 1)}"
        say(f"watching {count} of job {site.job} on node {site.node} from outside")
        OutsideWatch(site, OutsideProbe(ranks, busy_by_pid=busy), coordinator, console).run()
    finally:
        gpus.close()
        unlink(owned_file(where.sidecar_record), missing_ok=True)
        kept.close()
        lock.release()
    if coordinator.refusal:
        raise BadInput(coordinator.refusal)
    return 1 if console.is_in_trouble else 0


@dataclass
class OutsideWatch:
    """The loop over ranks without hooks."""

    site: Site
    probe: OutsideProbe
    coordinator: Coordinator
    console: Console
    histories: dict[int, OutsideHistory] = field(default_factory=dict)
    evidence_for: str = ""
    where_ranks_stood: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    runner: ActionRunner = field(default_factory=ActionRunner)
    _chronicle: IncidentStore = field(init=False)
    _kept_s: float = 0.0
    """When this node's evidence of the incident was found on disk."""
    _kept: KeptEvidence = field(default_factory=KeptEvidence)
    """What the thread that keeps it has finished last."""
    _keeping: threading.Thread | None = None
    _tries: EvidenceTries = field(default_factory=EvidenceTries)
    _leaving: threading.Event = field(default_factory=threading.Event)
    _looked_s: float | None = None
    _awake_since_s: float = float("-inf")

    def __post_init__(self) -> None:
        self._chronicle = IncidentStore(self.site.places)

    def run(self) -> None:
        """Look until every rank has ended, or told to leave."""
        leave_on_signal(self._leaving.set)
        self.coordinator.give_way = self._leaving.set
        self.coordinator.start()
        grace_s = self.site.settings.sidecar.grace_s
        while not self._leaving.wait(LOOK_S):
            now_s = time.monotonic()
            self.look(now_s, time.time())
            if self.console.alone_for_s(now_s) >= grace_s:
                break
        self.coordinator.stop()

    def look(self, now_s: float, now_unix_s: float) -> None:
        """Look at every rank, judge, hear what was decided, act, tell."""
        if self._looked_s is not None and now_s - self._looked_s > OVERSLEPT_S:
            self._awake_since_s = now_s
        self._looked_s = now_s
        for look in self.probe.read(now_s):
            rank = look.who.rank
            self.histories[rank] = follow_outside(self.histories.get(rank), look)
        moment = Moment(now_s, now_unix_s, self.site.node, self._awake_since_s)
        self.findings = list(find_outside_troubles(self.histories, moment))
        orders = obeyed(self.coordinator.orders())
        if orders.view is not None:
            incidents = orders.view.section(Section.INCIDENTS)
            self.runner.run("keep_incidents", partial(self._chronicle.keep, incidents))
        if orders.plan is not None:
            self._act(orders, orders.plan, now_s)
        self.coordinator.tell(
            LocalState(
                launcher_alive=True,
                launcher_pid=0,
                attempt=0,
                ranks=[_report(history) for history in self.histories.values()],
                findings=self.findings,
                evidence_for=self.evidence_for,
                where_ranks_stood=self.where_ranks_stood,
                attached=True,
            )
        )
        alive = {
            rank: history.look.who.pid
            for rank, history in self.histories.items()
            if not history.look.is_gone
        }
        self.console.look(alive, self.findings, orders.view, now_s)

    def _act(self, orders: Orders, plan: Plan, now_s: float) -> None:
        if self.evidence_for != plan.incident and NAME.fullmatch(plan.incident):
            self._keep(plan.incident, now_s)
        patience_s = self.site.settings.policy.evidence_timeout_s
        is_given_up = self._tries.are_over(plan.incident, patience_s, now_s)
        kept_without = {self.site.node} if is_given_up else ()
        warrant = Warrant(
            node=self.site.node,
            mode=mode_of_job(self.site.settings, plan.cause),
            evidence_for=self.evidence_for,
            everyone_kept=have_all_kept(plan, orders, kept_without)
            or now_s - self._kept_s > patience_s,
            is_evidence_given_up=is_given_up,
        )
        if not refusal(orders, warrant):
            for rank in plan.culprit_ranks:
                history = self.histories.get(rank)
                if history is not None and not history.look.is_gone:
                    self._end(orders, warrant, plan.attempt, history.look.who)

    def _keep(self, incident: str, now_s: float) -> None:
        """Begin, in a thread, or give it a little time: the watch goes on. One that hangs in a file
        system is left alone: nothing here can end it."""
        is_free = self._keeping is None or not self._keeping.is_alive()
        if is_free and self._tries.may_begin(incident, now_s):
            looks = [history.look for history in self.histories.values()]
            keep = partial(self._tries.run, incident, partial(self._keep_now, incident, looks))
            self._keeping = start_thread(self.runner.run, "evidence", ("keep_evidence", keep))
        if self._keeping is not None:
            self._keeping.join(WAIT_S)
        if self._kept.incident == incident:
            self.where_ranks_stood = dict(self._kept.where_ranks_stood)
            self.evidence_for, self._kept_s = incident, now_s

    def _keep_now(self, incident: str, looks: Sequence[OutsideLook]) -> bool:
        seen = keep_outside_evidence(incident, self.site.places.incident(incident), looks)
        self._kept = KeptEvidence(incident, {str(rank): where for rank, where in seen.items()})
        return True

    def _end(self, orders: Orders, warrant: Warrant, attempt: int, who: OutsideRank) -> None:
        pidfd = open_process(who.pid, who.start_ticks)
        if pidfd is None:
            return
        try:
            signal_handle(warranted(orders, warrant, attempt, who.rank, pidfd))
            say(f"ended rank {who.rank} (process {who.pid})")
        except (NotPermitted, ProcessLookupError):
            pass
        finally:
            os.close(pidfd)


def _report(history: OutsideHistory) -> RankReport:
    look = history.look
    phase = "stopped" if look.state == "T" else "resting" if history.still_s >= 1 else "computing"
    return RankReport(
        rank=look.who.rank,
        local_rank=look.who.local_rank,
        pid=look.who.pid,
        step=0,
        phase="gone" if look.is_gone else phase,
        phase_age_s=round(history.still_s, 3),
        step_s=0.0,
        own_s=0.0,
        alive=not look.is_gone,
    )


# `holdfast attach`: watch a job that somebody else launched.


@click.command()
@click.option("--job", envvar=environment.JOB, metavar="NAME", help="What to call the job.")
@click.option("--node", metavar="NAME", help="What to call this node (Slurm's name, or the host).")
@click.option("--environment", "prints", is_flag=True, help="Print what the ranks need; no more.")
@click.option("--pid", "pids", type=int, multiple=True, metavar="PID", help="Watch from outside.")
@click.option("--match", metavar="TEXT", help="The same: my processes whose command holds TEXT.")
@click.option("--mode", type=click.Choice(MODES), default="observe", show_default=True)
@click.option("--stay", is_flag=True, help="Wait for the next start once all ranks have ended.")
@serving_options
@settings_options
def attach(
    effective: Effective,
    job: str | None,
    node: str | None,
    prints: bool,
    pids: tuple[int, ...],
    match: str | None,
    mode: str,
    stay: bool,
    listen: str | None,
) -> None:
    """Watch a job that srun, mpirun or Kubernetes started, on this node.

    With hooks, which see steps, phases and collectives: set the variables where the job is started,
    and attach once per node, before or after it.

    \b
      eval "$(holdfast attach --environment --job llm)"
      srun python train.py &
      srun --overlap --ntasks-per-node=1 holdfast attach --job llm

    Without hooks, from outside: CPU time, sockets, input and output, stacks. PID may be what
    launched them (mpirun, srun's step, a shell): what that started is looked through for ranks.

    \b
      holdfast attach --job llm --pid $(pgrep -o mpirun)
      holdfast attach --job llm --match train.py

    Nothing is done to the job unless --mode=act, and then at most the culprit of a hang is ended,
    so that its launcher notices. `holdfast explain` tells the story, also afterwards. Several nodes
    need the same --redis to know of each other.

    \b
    Exit code: 0 every rank ended, or you ended the watch, and no trouble was left
               1 an incident was left
               2 something you gave is wrong
    """
    name = job or _scheduled_job(os.environ)
    if prints:
        click.echo(exports(name, effective.settings))
        return
    here = node or foreign_launch.node_name(os.environ, socket.gethostname())
    for what, given in (("job", name), ("node", here)):
        if not NAME.fullmatch(given):
            raise BadInput(f"{given!r} can't name a {what}: use letters, digits and . _ ~ -")
    logging.basicConfig(level=logging.ERROR, format="%(name)s: %(message)s")
    sidecar = dataclasses.replace(effective.settings.sidecar, mode=mode)
    if listen:
        sidecar = dataclasses.replace(sidecar, listen=listen)
    from holdfast_sidecar.cli.attach_watch import AttachedJob, watch_pages

    watched = AttachedJob(
        name, here, dataclasses.replace(effective.settings, sidecar=sidecar), stay
    )
    if pids or match:
        sys.exit(watch_outside(watched, pids, match))
    sys.exit(watch_pages(watched))


def _scheduled_job(environ: Mapping[str, str]) -> str:
    """The name of a job that has none, from its scheduler."""
    number = environ.get("SLURM_JOB_ID", "")
    return f"slurm-{number}" if number.isdecimal() else "attached"


def exports(job: str, settings: Settings) -> str:
    """Lines for a shell, which set what ranks need."""
    root = str(state_root(settings.paths))
    needed = foreign_launch.rank_environment(job, settings.paths.shm_dir, root, os.getuid())
    path = shlex.quote(needed.pop("PYTHONPATH"))
    lines = [f"export {name}={shlex.quote(value)}" for name, value in needed.items()]
    return "\n".join([*lines, f'export PYTHONPATH={path}"${{PYTHONPATH:+:$PYTHONPATH}}"'])
