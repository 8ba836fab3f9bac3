"""A synchronous training job of up to thousands of ranks, simulated, with planted faults.

Every rank works (noise with heavy tails and a memory, now and then a hiccup), then waits for its
tensor group, its pipeline and all replicas, in that order, as real ones do: so all steps take
equally long, and only waits and own times tell who was slow. Lines are what a sidecar would tell,
one per rank and step, host signals included.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy

from bench.stragglers.planted import (
    COMPUTE,
    EXCHANGE,
    GROWS,
    QUADRATIC,
    SHARES,
    TOKENS,
    Array,
    Columns,
    give_more,
    strike,
)
from bench.stragglers.scenario import Fault, Scenario
from holdfast_sidecar.performance.stragglers.placement import RankPlace
from holdfast_sidecar.records.steps import ProcessGroup, SlowCause, StepLine

UNSEEN = (SlowCause.LINK, SlowCause.PIPELINE, SlowCause.RECOMPILATION)
"""No rank takes longer on its own than its peers."""


class SimulatedJob:
    """Yields, step for step, the lines of all ranks."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.layout = scenario.layout
        self._random = numpy.random.default_rng(scenario.seed)
        count = self.layout.ranks
        self._nature = 1.0 + scenario.spread * self._random.standard_normal(count)
        self._noise = scenario.sigma * self._draw(count)
        shape = (self.layout.pp, self.layout.dp, self.layout.tp)
        self._shape = shape

    def places(self) -> dict[int, RankPlace]:
        """Where each rank stands."""
        layout = self.layout
        shape = {"pp": layout.pp, "dp": layout.dp, "tp": layout.tp}
        found = {}
        for rank in range(layout.ranks):
            at = layout.coordinates(rank)
            groups = (
                ProcessGroup("mesh_dp", f"dp-{at['pp']}-{at['tp']}", layout.dp),
                ProcessGroup("mesh_tp", f"tp-{at['pp']}-{at['dp']}", layout.tp)
                if layout.tp > 1
                else None,
                ProcessGroup("mesh_pp", f"pp-{at['dp']}-{at['tp']}", layout.pp)
                if layout.pp > 1
                else None,
                None,
            )
            found[rank] = RankPlace(
                rank=rank,
                node=f"node{rank // layout.ranks_per_node}",
                role=f"pp={at['pp']}" if layout.pp > 1 else "",
                coordinate=at,
                shape=shape,
                groups=groups,
            )
        return found

    def slow(self, step: int) -> dict[int, Fault]:
        """Rank -> the fault that makes its own time longer at this step: the truth."""
        return {
            rank: fault
            for fault in self.scenario.faults
            if fault.since <= step < fault.until and fault.cause not in UNSEEN
            for rank in fault.ranks
        }

    def steps(self, count: int, first: int = 1) -> Iterator[list[StepLine]]:
        """The lines of so many steps."""
        for step in range(first, first + count):
            yield self._step(step)

    def _draw(self, count: int) -> Array:
        tail = self.scenario.tail
        if tail <= 2:
            return self._random.standard_normal(count)
        unit = numpy.sqrt((tail - 2) / tail)
        drawn: Array = unit * self._random.standard_t(tail, count)
        return drawn

    def _step(self, step: int) -> list[StepLine]:
        columns = self._columns(step)
        table = numpy.empty((self.layout.ranks, len(StepLine._fields)), dtype=numpy.int64)
        for place, name in enumerate(StepLine._fields):
            table[:, place] = numpy.rint(columns.get(name, 0))
        away = {rank for rank, leaves, back in self.scenario.restarts if leaves <= step < back}
        lines = [StepLine._make(row) for row in table.tolist()]
        return [line for line in lines if line.rank not in away] if away else lines

    def _columns(self, step: int) -> Columns:
        scenario, count = self.scenario, self.layout.ranks
        striking = [fault for fault in scenario.faults if fault.strikes(step)]
        columns = {name: numpy.zeros(count) for name in StepLine._fields}
        columns["clock_permille"] += 990.0
        columns["tokens"], columns["squares"] = self._work()
        for fault in striking:
            if fault.cause is SlowCause.UNEVEN_WORK:
                give_more(fault, columns)
        parts = self._parts(columns["tokens"], columns["squares"])
        for fault in striking:
            strike(fault, parts, columns, scenario.step_us)
        for rank, _, back in scenario.restarts:
            if back <= step < back + 3:
                parts["forward"][rank] *= 2.0
        own: Array = numpy.sum(list(parts.values()), axis=0)
        waits, total = self._wait(own, [f for f in striking if f.cause is SlowCause.LINK])
        columns.update(parts)
        columns["steps"] = self._ordinary(step, columns)
        columns.update(
            rank=numpy.arange(count, dtype=float),
            step=numpy.full(count, step),
            stride=numpy.ones(count),
            total=total,
            communicating=total - own,
            wait_1=waits["dp"],
            wait_2=waits["tp"],
            wait_3=waits["pp"],
            waits_seen=numpy.ones(count),
            overlapped=numpy.full(count, 0.05 * scenario.step_us),
            cpu_permille=1000.0 * own / total,
        )
        for name, of_one in (("tokens", TOKENS), ("squares", TOKENS * 1024)):
            columns[name] = columns[name] * (of_one if scenario.tells_work else 0)
        return columns

    def _work(self) -> tuple[Array, Array]:
        """Each rank's tokens and squares beside a usual one's."""
        # All stages and tensor shards of a replica work on the same batch.
        sizes = squares = numpy.ones(self.layout.dp)
        if self.scenario.lengths:
            spread = self.scenario.lengths
            sizes = numpy.clip(self._random.lognormal(0.0, spread, self.layout.dp), 0.3, 3.0)
            bent = self._random.lognormal(0.0, spread / 2, self.layout.dp)
            squares = sizes**2 * numpy.clip(bent, 0.5, 2.0)
        return self._to_all(sizes), self._to_all(squares)

    def _to_all(self, of_replicas: Array) -> Array:
        shaped = numpy.broadcast_to(of_replicas.reshape(1, -1, 1), self._shape)
        return shaped.reshape(self.layout.ranks).copy()

    def _parts(self, tokens: Array, squares: Array) -> Columns:
        scenario, count = self.scenario, self.layout.ranks
        fresh = numpy.sqrt(1.0 - scenario.memory**2) * scenario.sigma * self._draw(count)
        self._noise = scenario.memory * self._noise + fresh
        speed = numpy.clip(1.0 + self._noise, 0.5, None) * self._nature
        work = (1.0 - QUADRATIC) * tokens + QUADRATIC * squares
        grown = 1.0 - GROWS + GROWS * work
        parts = {
            name: scenario.step_us * share * speed * (grown if name in COMPUTE else 1.0)
            for name, share in SHARES.items()
        }
        rest = 1.0 - sum(SHARES.values())
        hiccup = self._random.random(count) < scenario.hiccups
        long = hiccup * self._random.uniform(0.5, 2.0, count)
        parts["other"] = scenario.step_us * (rest * speed + long)
        return parts

    def _wait(self, own: Array, links: Sequence[Fault]) -> tuple[Mapping[str, Array], Array]:
        """What each rank waits in each of its groups, and how long the step takes."""
        at = own.reshape(self._shape)
        waits: dict[str, Array] = {}
        for dimension, axis in (("tp", 2), ("pp", 0), ("dp", 1)):
            late = at.max(axis=axis, keepdims=True)
            if dimension == "dp":
                late = at.max(keepdims=True)
            ready = numpy.broadcast_to(late, self._shape).copy()
            share = {"tp": 0.3, "pp": 0.2, "dp": 0.5}[dimension]
            if self._shape[axis] > 1 or dimension == "dp":
                ready += share * EXCHANGE * self.scenario.step_us
            for fault in links:
                if fault.dimension == dimension:
                    members = self.layout.members(dimension, fault.ranks[0])
                    ready.reshape(-1)[members] += fault.slowdown * self.scenario.step_us
            waits[dimension] = (ready - at).reshape(-1)
            at = ready
        # The next step begins together: who left its exchange early waits there.
        end = at.max()
        waits["dp"] = waits["dp"] + (end - at).reshape(-1)
        return waits, numpy.full(self.layout.ranks, end)

    def _ordinary(self, step: int, columns: Columns) -> Array:
        scenario = self.scenario
        ordinary: Array = ((columns["compiled"] == 0) & (columns["lost"] == 0)).astype(float)
        for every in (scenario.evaluates_every, scenario.saves_every):
            if every and step % every == 0:
                columns["lost"] = columns["lost"] + 2.0 * scenario.step_us
                ordinary[:] = 0.0
        return ordinary
