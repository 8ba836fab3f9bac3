"""Heartbeats of many nodes on a virtual clock, read by the real judge. Pure.

Writers, judge and store each stand still now and then, for `pause_s` at most; nodes and sidecars
are lost now and then, and come back. What the judge says of the living is a false alarm.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from bench.benchmark import Sample
from holdfast_sidecar.config.settings import SidecarSettings
from holdfast_sidecar.policy.cluster import COUNTED_BEATS, Beat, Cluster, Heartbeats, StepBegins
from holdfast_sidecar.policy.start import ROUNDS, Witnesses, find_absent, judge_presence
from holdfast_sidecar.records.plan import Member, Plan
from holdfast_sidecar.records.reports import AgentReport, LifeSign, NodeReport

NEVER = float("inf")

STEPS = StepBegins(0.0)
"""None are made: heartbeats have to hold by themselves."""

NODES = 16

PAUSED_SHARE = 0.03
"""Of the intervals between two heartbeats, two looks, or two calls that have a pause in them."""

CALL_S = 0.02
"""A call to the store takes up to this long besides."""


UNANSWERED = {f"n{node}": LifeSign(0.0, ROUNDS) for node in range(NODES)}
"""So do round trips: each node answered once, and never again."""


@dataclass(frozen=True)
class Weather:
    """What is simulated."""

    beats: int
    """Heartbeats to be written in all."""
    nodes: int = NODES
    pause_s: float = 0.5
    lost_every_s: float = 20.0
    """A node, or a sidecar alone, is lost this often."""
    settings: SidecarSettings = field(default_factory=SidecarSettings)


@dataclass
class Writer:
    """One process that beats, until it is lost; then it comes back as another."""

    name: str
    next_at: float
    life: int = 0
    count: int = 0
    lost_at: float = NEVER
    back_at: float = NEVER
    beat: Beat = field(default_factory=lambda: Beat("0", 0))

    @property
    def is_lost(self) -> bool:
        return self.lost_at < NEVER


@dataclass
class Simulation:
    """One run of it."""

    weather: Weather
    seed: int
    chance: random.Random = field(init=False)
    writers: dict[str, Writer] = field(default_factory=dict)
    stalls: Iterator[tuple[float, float]] = field(init=False)
    stall: tuple[float, float] = (0.0, 0.0)
    written: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        for node in range(self.weather.nodes):
            for kind in ("agent", "node"):
                name = f"{kind}/n{node}"
                self.writers[name] = Writer(name, self.chance.random())
        self.stalls = self._stalls()

    def run(self) -> Sample:
        """Judge until so many heartbeats were written."""
        settings, cluster = self.weather.settings, _cluster(self.weather.nodes)
        judge = Heartbeats(COUNTED_BEATS * settings.heartbeat_s, settings.node_timeout_s)
        now, next_loss = 2.0, 2.0 + self.weather.lost_every_s
        false_alarms, declared, longest_s = 0, list[tuple[str, float]](), 0.0
        awaited: dict[str, float] = {}
        while self.written < self.weather.beats:
            if now >= next_loss:
                awaited |= self._lose(now)
                next_loss += self.weather.lost_every_s
            answered = self._answered(now)
            beats = {name: writer.beat for name, writer in self._write_until(now, answered)}
            judge.observe(beats, "server", now, answered)
            longest_s = max([longest_s, *self._silences(judge, now)])
            seen = judge_presence(cluster, Witnesses(judge, STEPS, UNANSWERED), settings, now)
            found = find_absent(seen, judge, settings.node_timeout_s, now, now)
            for what in {f"{finding.kind.value} {finding.node}" for finding in found}:
                if what in awaited:
                    declared.append((what.split()[0], answered - awaited.pop(what)))
                elif not self._is_gone(what.split()[1]):
                    false_alarms += 1
            self._come_back(awaited, now)
            due_s = judge.next_due_s(beats, settings.node_timeout_s, now)
            now = max(answered, now) + min(settings.heartbeat_s, due_s) + self._pause()
        return {
            "beats": self.written,
            "simulated_s": round(now),
            "false_alarms": false_alarms,
            "longest_silence_s": round(longest_s, 3),
            "nodes_s": [round(s, 4) for what, s in declared if what == "node_lost"],
            "sidecars_s": [round(s, 4) for what, s in declared if what == "sidecar_lost"],
            "not_declared": len(awaited),
        }

    def _pause(self) -> float:
        """Mostly none; else any up to the longest, and the longest itself not rarely."""
        if self.chance.random() >= PAUSED_SHARE:
            return 0.0
        return self.weather.pause_s * min(1.0, 1.3 * self.chance.random())

    def _stalls(self) -> Iterator[tuple[float, float]]:
        """When the store stood still."""
        at = 0.0
        while True:
            at += self.chance.expovariate(1 / 30.0)
            yield at, (at := at + self.weather.pause_s * self.chance.random())

    def _answered(self, asked: float) -> float:
        while self.stall[1] <= asked:
            self.stall = next(self.stalls)
        begins, ends = self.stall
        took = asked + CALL_S * self.chance.random()
        return max(took, ends) if took >= begins else took

    def _write_until(self, asked: float, answered: float) -> Iterator[tuple[str, Writer]]:
        """Everyone as the store shows it: what came while it stood still waits behind the look."""
        is_stalled = answered - asked > CALL_S
        until = asked if is_stalled else answered
        for name, writer in self.writers.items():
            while writer.next_at <= until and writer.next_at < writer.lost_at:
                writer.count += 1
                self.written += 1
                call_s = CALL_S * self.chance.random()
                writer.next_at += self.weather.settings.heartbeat_s + call_s + self._pause()
                writer.beat = Beat(str(writer.life), writer.count)
            yield name, writer

    def _silences(self, judge: Heartbeats, now: float) -> Iterator[float]:
        return (judge.still_for(w.name, now) for w in self.writers.values() if not w.is_lost)

    def _lose(self, now: float) -> dict[str, float]:
        """A node, or its sidecar alone, stops for ever; what has to be declared, and since when."""
        node = f"n{self.chance.randrange(self.weather.nodes)}"
        if self._is_gone(node):
            return {}
        is_whole = self.chance.random() < 0.5
        at = now + self.weather.settings.heartbeat_s * self.chance.random()
        for kind in ("agent", "node") if is_whole else ("node",):
            writer = self.writers[f"{kind}/{node}"]
            writer.lost_at, writer.back_at = at, at + 5.0
        return {f"{'node_lost' if is_whole else 'sidecar_lost'} {node}": at}

    def _is_gone(self, node: str) -> bool:
        return any(self.writers[f"{kind}/{node}"].is_lost for kind in ("agent", "node"))

    def _come_back(self, awaited: dict[str, float], now: float) -> None:
        missed = {what.split()[1] for what in awaited}
        for writer in self.writers.values():
            if now >= writer.back_at and writer.name.partition("/")[2] not in missed:
                writer.life += 1
                writer.next_at, writer.lost_at, writer.back_at = now, NEVER, NEVER


def simulate(weather: Weather, seed: int) -> Sample:
    """One run of this weather."""
    return Simulation(weather, seed).run()


def _cluster(nodes: int) -> Cluster:
    """A job of so many members, all running."""
    names = [f"n{index}" for index in range(nodes)]
    members = [Member(name, "i", index, index, 1) for index, name in enumerate(names)]
    return Cluster(
        {n: AgentReport(n, "i", "running", 0, 0, 1, "", 1, nodes, pid=1) for n in names},
        {n: NodeReport(n, "i", 0, 0, 1, 0, True, launcher_pid=1) for n in names},
        Plan(0, 1, "running", members, nodes),
    )
