"""The job as the leader reads it: a store's view parsed into reports, and who of them is alive."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from holdfast_sidecar.policy.quarantine import as_asked, is_kept_out
from holdfast_sidecar.records.account import Account, parse_account
from holdfast_sidecar.records.checkpoint import (
    AttemptKey,
    CheckpointOrder,
    CheckpointTally,
    LedgerEntry,
    PeerOrder,
    SnapshotOrder,
    TraceOrder,
)
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.plan import Incident, Plan, Quarantine, Request
from holdfast_sidecar.records.reports import AgentReport, NodeReport, RankReport
from holdfast_sidecar.store.protocol import CURRENT, TALLY, Section, View

# Who is alive, judged by counters that move, on the judge's own monotonic clock.
#
# Clocks of other nodes and lifetimes of keys take no part.

COUNTED_BEATS = 2.0
"""A gap between two looks counts for no more than this. A judge looks once a beat; beyond twice
that it slept or was starved itself, and a machine that starves one process starves others too."""


ANY_GROUP = ""
"""Stands for all process groups of ranks that don't tell which they are in."""


@dataclass(frozen=True)
class Beat:
    """A counter as read: it counts only within one incarnation of its writer."""

    incarnation: str
    count: int


@dataclass
class _Seen:
    beat: Beat
    moved_at: float


class Heartbeats:
    """Remembers when each counter last moved.

    Deadlines start again whenever the judge itself can't have seen them move: it was away, or the
    server changed. So a frozen judge or a failover never declares a healthy node lost.
    """

    def __init__(self, counted_s: float, late_after_s: float) -> None:
        """A gap between looks counts for `counted_s` at most; after one of more than
        `late_after_s` all deadlines start again."""
        self._counted_s = counted_s
        self._late_after_s = late_after_s
        self._seen: dict[str, _Seen] = {}
        self._server = ""
        self._asked_at: float | None = None

    def observe(
        self, beats: Mapping[str, Beat], server: str, asked_at: float, answered_at: float
    ) -> None:
        """Take in a reading: monotonic seconds before the store was asked, and after.

        What moved has moved by `answered_at`; what stands still is known to until `asked_at`. So
        a store that keeps everybody waiting makes nobody look silent.
        """
        gap_s = 0.0 if self._asked_at is None else asked_at - self._asked_at
        if gap_s > self._late_after_s or server != self._server:
            for known in self._seen.values():
                known.moved_at = answered_at
        elif gap_s > self._counted_s:
            for known in self._seen.values():
                known.moved_at += gap_s - self._counted_s
        self._server, self._asked_at = server, asked_at
        for name in self._seen.keys() - beats.keys():
            del self._seen[name]
        for name, beat in beats.items():
            seen = self._seen.get(name)
            if seen is None or seen.beat != beat:
                self._seen[name] = _Seen(beat, answered_at)

    def still_for(self, name: str, now: float) -> float:
        """Seconds this counter has stood still; infinity when it was never read."""
        seen = self._seen.get(name)
        return float("inf") if seen is None else max(0.0, now - seen.moved_at)

    def next_due_s(self, names: Iterable[str], timeout_s: float, now: float) -> float:
        """Seconds until the first of these that still count as alive will have been silent for
        this long; infinity when there is none. Who looks then learns of it at once."""
        due = (timeout_s - self.still_for(name, now) for name in names)
        return min((left_s for left_s in due if left_s > 0), default=float("inf"))


@dataclass(frozen=True)
class Steps:
    """What all ranks of a node have done in this attempt."""

    completed: int
    collectives: Mapping[str, int]
    """By process group, that each of its ranks here began at the least; see ANY_GROUP."""

    def groups_stepping_since(self, before: Steps) -> frozenset[str]:
        """Those in which each step had a collective, if a whole step lies between the two."""
        more = self.completed - before.completed
        return frozenset(
            group
            for group, count in self.collectives.items()
            if more >= 2 and count - before.collectives.get(group, count) >= more
        )


class StepBegins:
    """Remembers when the newest step that each node completed began at the earliest.

    Ranks train in step, so a step that was completed on one node, and begun after another one was
    last heard of, shows that the other one lived on. Steps without a collective of a group that the
    other one is in, as of ranks that train apart, show nothing. Steps only ever speak for a node:
    ranks may stand still for reasons of their own, and a step that is longer than a silence says
    nothing.
    """

    def __init__(self, lag_s: float) -> None:
        """A report may be so old when it is written."""
        self._lag_s = lag_s
        self._attempt = -1
        self._asked_at = float("-inf")
        self._beats: dict[str, Beat] = {}
        self._counts: dict[str, deque[tuple[Steps, float]]] = {}
        self._began: dict[str, dict[str, float]] = {}
        """Node -> group -> when."""
        self._groups: dict[str, frozenset[str]] = {}

    def observe(
        self, attempt: int, steps: Mapping[str, Steps], beats: Mapping[str, Beat], asked_at: float
    ) -> None:
        """Take in a reading: what all ranks of a node have done, and its heartbeat."""
        if attempt != self._attempt:
            self._attempt, self._counts, self._began, self._beats = attempt, {}, {}, {}
            self._groups = {}
        # What is read anew was written after the look before.
        counted_at, self._asked_at = self._asked_at - self._lag_s, asked_at
        for node, done in steps.items():
            if (beat := beats.get(node)) is None or self._beats.get(node) == beat:
                continue
            self._beats[node] = beat
            known = self._counts.setdefault(node, deque(maxlen=3))
            if known and known[-1][0].completed == done.completed:
                known.pop()
            self._groups[node] = frozenset(done.collectives)
            began = self._began.setdefault(node, {})
            # It began when the one before it was complete: after any look that saw one less yet.
            for before, at in known:
                for group in done.groups_stepping_since(before):
                    began[group] = max(at, began.get(group, float("-inf")))
            known.append((done, counted_at))

    def began_elsewhere(self, node: str) -> float:
        """When the newest such step of another node began; -infinity: none is known."""
        own = self._groups.get(node, frozenset([ANY_GROUP]))
        return max(
            (
                at
                for name, began in self._began.items()
                for group, at in began.items()
                if name != node and (group in own or ANY_GROUP in (group, *own))
            ),
            default=float("-inf"),
        )


T = TypeVar("T")

UNRESPONSIVE_FACTOR = 10.0
"""A sidecar that is silent while its launcher is heard may just be starved or be started anew: wait
longer."""


@dataclass(frozen=True)
class Cluster:
    """Everything the leader judges by, parsed."""

    agents: Mapping[str, AgentReport] = field(default_factory=dict)
    nodes: Mapping[str, NodeReport] = field(default_factory=dict)
    plan: Plan | None = None
    plan_text: str | None = None
    checkpoint: CheckpointOrder | None = None
    checkpoint_text: str | None = None
    tally: CheckpointTally = field(default_factory=CheckpointTally)
    """What became of checkpoints so far."""
    tally_text: str | None = None
    ledger: Mapping[str, LedgerEntry] = field(default_factory=dict)
    ledger_texts: Mapping[str, str] = field(default_factory=dict)
    incidents: Mapping[str, Incident] = field(default_factory=dict)
    incident_texts: Mapping[str, str] = field(default_factory=dict)
    requests: Mapping[str, Request] = field(default_factory=dict)
    request_texts: Mapping[str, str] = field(default_factory=dict)
    snapshot: SnapshotOrder | None = None
    snapshot_text: str | None = None
    peer: PeerOrder | None = None
    peer_text: str | None = None
    trace: TraceOrder | None = None
    trace_text: str | None = None
    key: AttemptKey | None = None
    key_text: str | None = None
    account_fields: Mapping[str, str] = field(default_factory=dict)
    """See records.account."""
    lost: Mapping[str, float] = field(default_factory=dict)
    """Nodes whose agent is known to be gone, or for which no witness speaks any more -> seconds of
    silence. Of nodes that run no attempt only the store is a witness."""
    ended: frozenset[str] = frozenset()
    """Those of them whose own sidecar saw the launcher end."""
    stepped_with: frozenset[str] = frozenset()
    """Lost nodes with which others completed steps in this attempt: these may speak again."""
    cut_off: Mapping[str, str] = field(default_factory=dict)
    """Members of the attempt under way that the store hears nothing of, but are not lost -> why
    not."""
    speechless: Mapping[str, float] = field(default_factory=dict)
    """Members whose launcher alone is silent, beside ranks that live -> for how many seconds."""
    unattended: frozenset[str] = frozenset()
    """Nodes whose sidecar has been silent for longer than it takes to start another."""

    unfit: Mapping[str, str] = field(default_factory=dict)
    """Nodes that the health gate keeps outside -> why."""
    lame: frozenset[str] = frozenset()
    """Those of them that an attempt would run on all the same."""
    never_again: frozenset[str] = frozenset()
    """Nodes of the attempt that the next one would not take in, however few others there are."""
    unheard: frozenset[str] = frozenset()
    """Nodes whose health check is still waited for."""
    unchecked: frozenset[str] = frozenset()
    """Nodes whose health check never came: they are let in all the same."""

    @cached_property
    def account(self) -> Account | None:
        """Where the run's time went; parsed by those alone who ask."""
        return parse_account(self.account_fields)

    def is_alive(self, node: str) -> bool:
        """Whether this node's agent takes part."""
        agent = self.agents.get(node)
        return agent is not None and agent.state != "left" and node not in self.lost

    def is_alone(self, node: str) -> bool:
        """Whether the job never has another node than this one, as its launcher says."""
        agent = self.agents.get(node)
        return agent is not None and agent.max_nodes == 1 and agent.spares == 0

    def outside(self) -> list[Quarantine]:
        """Nodes that are kept outside, as the plan has it and as was asked since."""
        kept = [] if self.plan is None else self.plan.outside
        return as_asked(kept, self.requests.values(), self.agents.values())

    def joining(self) -> list[AgentReport]:
        """Living agents that want into an attempt, and may come in."""
        outside = self.outside()
        return [agent for agent in self.willing() if not is_kept_out(agent, outside)]

    def willing(self) -> list[AgentReport]:
        """The same with those that are kept outside: who is fit, as far as is known, and of those
        that are lame as many as the minimum of nodes wants."""
        waiting = self.waiting()
        ill = self.unfit.keys() | self.unheard
        return [
            *(agent for agent in waiting if agent.node not in ill),
            *self._stopgaps([agent for agent in waiting if agent.node in self.lame]),
        ]

    def _stopgaps(self, lame: list[AgentReport]) -> list[AgentReport]:
        """Of these as many as are wanting, members of the attempt first: what works for them is
        worth more than a job that ends."""
        if not lame:
            return []
        outside = self.outside()
        others = [
            agent
            for agent in self.agents.values()
            if self.is_alive(agent.node) and agent.node not in self.unfit
        ]
        there = sum(not is_kept_out(agent, outside) for agent in others)
        members = [] if self.plan is None else [member.node for member in self.plan.members]
        able = [agent for agent in lame if not is_kept_out(agent, outside)]
        able.sort(key=lambda agent: (agent.node not in members, agent.node))
        return able[: max(0, lame[0].min_nodes - there)]

    def at_hand(self, outside: Iterable[Quarantine]) -> list[AgentReport]:
        """Living agents that could be taken in if they were wanted, with these kept outside: fit,
        lame, or not looked at yet."""
        ill = self.unfit.keys() - self.lame
        waiting = (agent for agent in self.waiting() if agent.node not in ill)
        outside = list(outside)
        return [agent for agent in waiting if not is_kept_out(agent, outside)]

    def waiting(self) -> list[AgentReport]:
        """Living agents that want into an attempt, fit or not."""
        return [
            agent
            for agent in self.agents.values()
            if agent.state == "joining" and not agent.leaves and self.is_alive(agent.node)
        ]

    def asked_to_save(self) -> list[str]:
        """Requests for a checkpoint that nothing has become of yet, oldest first."""
        waiting = (r for r in self.requests.values() if r.kind == "checkpoint" and not r.refused)
        return [r.identifier for r in sorted(waiting, key=lambda r: (r.at_unix_s, r.identifier))]

    def asked_to_stop(self) -> str | None:
        """Who asked for the end of the job, in words; None when nobody did."""
        stops = (r for r in self.requests.values() if r.kind == "stop")
        return next((f"asked for by {request.by}" for request in stops), None)

    def ranks(self, plan: Plan) -> dict[int, RankReport]:
        """The ranks of this plan's attempt, as their sidecars report them."""
        return {
            rank.rank: rank
            for member in plan.members
            if (node := self.nodes.get(member.node)) is not None and node.attempt == plan.attempt
            for rank in node.ranks
        }


def parse_cluster(
    view: View, recognise: Callable[[str], NodeReport | None] = lambda text: None
) -> Cluster:
    """Parse a view; what can't be read is left out.

    recognise: answers a sidecar's report whose text is known already.
    """
    plan_text = view.section(Section.PLAN).get(CURRENT)
    checkpoint_text = view.section(Section.CHECKPOINT).get(CURRENT)
    tally_text = view.section(Section.CHECKPOINT).get(TALLY)
    return Cluster(
        agents=_parse_all(AgentReport, view.section(Section.AGENTS)),
        nodes=_parse_nodes(view.section(Section.NODES), recognise),
        plan=None if plan_text is None else decode(Plan, plan_text),
        plan_text=plan_text,
        checkpoint=None if checkpoint_text is None else decode(CheckpointOrder, checkpoint_text),
        checkpoint_text=checkpoint_text,
        tally=(tally_text and decode(CheckpointTally, tally_text)) or CheckpointTally(),
        tally_text=tally_text,
        ledger=_parse_all(LedgerEntry, view.section(Section.LEDGER)),
        ledger_texts=view.section(Section.LEDGER),
        incidents=_parse_all(Incident, view.section(Section.INCIDENTS)),
        incident_texts=view.section(Section.INCIDENTS),
        requests=_parse_all(Request, view.section(Section.REQUESTS)),
        request_texts=view.section(Section.REQUESTS),
        snapshot=_current(SnapshotOrder, view, Section.SNAPSHOT),
        snapshot_text=view.section(Section.SNAPSHOT).get(CURRENT),
        peer=_current(PeerOrder, view, Section.PEER),
        peer_text=view.section(Section.PEER).get(CURRENT),
        trace=_current(TraceOrder, view, Section.TRACE),
        trace_text=view.section(Section.TRACE).get(CURRENT),
        key=_current(AttemptKey, view, Section.KEY),
        key_text=view.section(Section.KEY).get(CURRENT),
        account_fields=view.section(Section.ACCOUNT),
    )


def beats(cluster: Cluster) -> dict[str, Beat]:
    """Every counter there is, by `agent/NODE` and `node/NODE`."""
    agents = {f"agent/{a.node}": Beat(a.incarnation, a.beat) for a in cluster.agents.values()}
    nodes = {f"node/{n.node}": Beat(n.incarnation, n.beat) for n in cluster.nodes.values()}
    return agents | nodes


def _current(kind: type[T], view: View, section: Section) -> T | None:
    text = view.section(section).get(CURRENT)
    return None if text is None else decode(kind, text)


def _parse_nodes(
    fields: Mapping[str, str], recognise: Callable[[str], NodeReport | None]
) -> dict[str, NodeReport]:
    parsed = {name: recognise(text) or decode(NodeReport, text) for name, text in fields.items()}
    return {name: report for name, report in parsed.items() if report is not None}


def _parse_all(kind: type[T], fields: Mapping[str, str]) -> dict[str, T]:
    parsed = {name: decode(kind, text) for name, text in fields.items()}
    return {name: record for name, record in parsed.items() if record is not None}
