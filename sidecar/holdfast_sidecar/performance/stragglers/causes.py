"""Why a rank is slow: the cause that explains most of its excess, what says so, and what to do.

A signal names the cause where it explains half of the excess, or more than is left open; else the
part of the step that grew does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast_sidecar.performance.stragglers import signals
from holdfast_sidecar.performance.stragglers.explanations import COMPUTING, Explanation, explain
from holdfast_sidecar.performance.stragglers.frame import Excess, GroupMembership, StepFrame
from holdfast_sidecar.performance.stragglers.placement import RankPlace
from holdfast_sidecar.performance.stragglers.signals import (
    SAMPLE,
    Signals,
    SlowCase,
    blend,
    hear,
    middle,
    read,
    strongest,
)
from holdfast_sidecar.records.findings import Finding
from holdfast_sidecar.records.steps import SlowCause, StepLine

# What a person does next about one who is slow, by the cause.

_ADVICE = {
    SlowCause.GPU_CLOCK: (
        "look at its cooling and its power supply (`nvidia-smi -q -d PERFORMANCE,TEMPERATURE`): "
        "airflow, dust, a fan, a brake that the supply asks for; until then take another node"
    ),
    SlowCause.GPU_POWER: (
        "compare its power limit with its neighbours' (`nvidia-smi -q -d POWER`) and set it alike "
        "(`nvidia-smi -pl`); a chip that needs more than others at the same clock stays slower"
    ),
    SlowCause.GPU_LINK: (
        "look at its PCIe link and NVLinks (`nvidia-smi -q -d PCIE`, `nvidia-smi nvlink -s`, AER "
        "errors in `dmesg`): reseat or reset the card; and at pinned memory and NUMA placement"
    ),
    SlowCause.GPU_SHARED: (
        "end the other process on its GPU, or keep it for the job alone (exclusive compute mode, "
        "the scheduler's own partition)"
    ),
    SlowCause.COMPUTE: (
        "compare it with a peer (`holdfast trace`): the same operators, slower, are the machine's "
        "doing (its CPU's clock, its memory), other ones the script's (a branch of that rank alone)"
    ),
    SlowCause.CPU_QUOTA: (
        "raise the CPU limit of its container (cpu.max, resources.limits.cpu), or start fewer "
        "loader workers and threads (OMP_NUM_THREADS) in it"
    ),
    SlowCause.CPU_CONTENTION: (
        "see what else runs on its cores (`top`, `holdfast status`): end it, bind ranks to cores "
        "of their own (`taskset`, `numactl`), or start fewer loader workers and threads"
    ),
    SlowCause.MEMORY_PRESSURE: (
        "give it more host memory, or need less: fewer loader workers, less prefetched, no swap; "
        "see who takes it (memory.stat of its cgroup, `ps --sort=-rss`)"
    ),
    SlowCause.COLLECTOR: (
        "keep Python's collector out of the step: `gc.freeze()` after the warm-up, then "
        "`gc.disable()` and `gc.collect()` every few hundred steps, at the same step on all ranks"
    ),
    SlowCause.DATA_LOADING: (
        "its loader is late: more workers or prefetching, less work per sample on the CPU, and see "
        "whether its shard is larger or differently stored than its peers'"
    ),
    SlowCause.STORAGE: (
        "look at what it reads from (`iostat -x`, `nfsiostat`, the mount and its server): move the "
        "data to a local or a quicker volume, or read further ahead"
    ),
    SlowCause.LINK: (
        "look at the cable, the transceiver, the card and the switch's port (`ethtool -S`, "
        "`rdma statistic`), and at what else uses that way; NCCL_DEBUG=INFO shows the routes taken"
    ),
    SlowCause.UNEVEN_WORK: (
        "even out what ranks are given: pack sequences to one length, sort or bucket them, or "
        "share batches out by tokens (squared, where attention dominates) and not by samples"
    ),
    SlowCause.PIPELINE: (
        "move layers from this stage to the others (embedding and loss count too), or give it more "
        "ranks; more micro-batches make the bubble smaller, not the stage quicker"
    ),
    SlowCause.RECOMPILATION: (
        "see what it compiles again for (TORCH_LOGS=recompiles): mark sizes that change as dynamic "
        "(`torch._dynamo.mark_dynamic`), pad batches to a few sizes, keep Python values constant"
    ),
    SlowCause.EVALUATION: (
        "share the evaluation out over all ranks, evaluate less often, or in a job of its own from "
        "a checkpoint: the others wait for it in their next collective"
    ),
    SlowCause.SAVING: (
        "let all ranks save their own part (torch.distributed.checkpoint), or save in the "
        "background (`job.checkpoint` does): the others wait for it in their next collective"
    ),
    SlowCause.UNKNOWN: (
        "`holdfast trace` takes a profile of it beside one of a healthy peer: what differs is the "
        "reason"
    ),
}

UNKNOWN_LINK = (
    "which node's link it is can't be told from groups that all nodes are in: look at the links' "
    "counters of all of them; process groups that span fewer nodes would tell"
)
"""Where a link is slow and nobody can be named."""


COMPUTE_ON_DEVICE = (
    "compare it with a peer (`holdfast trace`): the same kernels, slower, are the device's "
    "doing (`dcgmi diag -r 3`), other kernels the script's (a branch of that rank alone)"
)

ASLEEP = (
    "see where it stands meanwhile (`holdfast trace`, `py-spy dump --pid`): a sleep, a lock, a "
    "file or a call over the network that this rank alone waits for"
)


def advise(cause: SlowCause, has_device: bool = False, is_asleep: bool = False) -> str:
    """What to do about it, on a GPU or not, where the rank computes or where it waits."""
    if is_asleep:
        return ASLEEP
    if cause is SlowCause.COMPUTE and has_device:
        return COMPUTE_ON_DEVICE
    return _ADVICE[cause]


ENOUGH = 0.5
LEAST = 0.3
"""Of the excess: what explains less than half may be true and is not why, unless still less is left
to explain; below a third nothing is named for it."""

NEARLY = 0.7
"""Of what the best one explains: signals are no more exact than that."""

GUESSED = 0.6
"""So sure are we of a cause for which only the place of the time speaks."""

MOST = 0.95

UNEXPLAINED = (SlowCause.COMPUTE, SlowCause.UNKNOWN)

NOTHING = Explanation(SlowCause.UNKNOWN, 0.0, "no signal explains it", is_measured=False)


@dataclass(frozen=True)
class Named:
    """A cause and what speaks for it."""

    cause: SlowCause
    confidence: float
    evidence: tuple[str, ...]
    advice: str
    part: str
    is_measured: bool = True
    """By a signal or a finding; else by where the time goes alone."""
    is_asleep: bool = False
    """It slept or waited, rather than computed."""
    is_host_only: bool = False
    """It computes on no GPU or the like, which could be slow without a sign."""


def name_cause(case: SlowCase) -> Named:
    """The cause of one slow rank."""
    found = list(explain(case))
    best = _choose(found, case)
    is_asleep = best.cause in UNEXPLAINED and case.is_asleep
    return Named(
        best.cause,
        _sureness(best, case),
        tuple(_evidence(best, case)),
        advise(best.cause, case.witness.has_device, is_asleep),
        case.main_part,
        best.is_measured,
        is_asleep,
        case.witness.is_host_only,
    )


def _choose(found: Sequence[Explanation], case: SlowCase) -> Explanation:
    if case.excess.is_by_work_alone:
        # A long step among the newest may have made more of it than work explains.
        by_work = (one for one in found if one.cause is SlowCause.UNEVEN_WORK)
        return next(by_work, NOTHING)
    measured = [one for one in found if one.is_measured]
    best = _most_telling(measured, case)
    left_us = case.excess_us - sum(max(0.0, one.explains_us) for one in measured)
    # Signals say less than all of it: the best counts where no more than that is left open.
    enough_us = min(ENOUGH * case.excess_us, max(LEAST * case.excess_us, left_us))
    if best.explains_us >= enough_us:
        return best
    guesses = [one for one in found if not one.is_measured]
    guess = max(guesses, key=lambda one: one.explains_us, default=NOTHING)
    return guess if guess.explains_us >= LEAST * case.excess_us else NOTHING


def _most_telling(measured: Sequence[Explanation], case: SlowCase) -> Explanation:
    """Of those that explain nearly as much as the best the most specific, which comes first: a
    collector at work on a busy node waits for a core as well, but it is what takes the time."""
    explained = [min(one.explains_us, case.excess_us) for one in measured]
    least = NEARLY * max(explained, default=0.0)
    told = zip(measured, explained, strict=True)
    return next((one for one, us in told if us >= least), NOTHING)


def _sureness(best: Explanation, case: SlowCase) -> float:
    if best is NOTHING:
        return 0.0
    share = min(1.0, best.explains_us / case.excess_us)
    return round((MOST if best.is_measured else GUESSED) * share, 2)


def _evidence(best: Explanation, case: SlowCase) -> Iterator[str]:
    part = case.main_part
    mine = case.own.part(part)
    theirs = mine - case.parts_us.get(part, 0.0)
    if mine > 0:
        usual = max(0.0, theirs) / 1e3
        yield f"{part} takes {mine / 1e3:.1f} ms of a step, its peers' {usual:.1f} ms"
    yield signals.tell_asleep(case.own) if best is NOTHING and case.is_asleep else best.text
    share = min(1.0, best.explains_us / case.excess_us)
    if best.is_measured:
        yield f"that explains {share:.0%} of its excess"
    if best.cause is SlowCause.COMPUTE:
        yield from filter(None, (case.witness.heat, case.witness.memory_errors))
    if best.is_measured and part in COMPUTING and case.witness.heat:
        yield case.witness.heat


# What is heard of those who are slow: their signals beside those of healthy peers, frame by frame,
# and the cause that most frames agree on.

FORGETS = 0.9
"""Of the votes that frames gave, kept per frame: some ten make the verdict."""

OUTVOTES = 1.5
"""A cause that has so many times the votes of the one that was told takes its place: two that are
nearly alike don't take turns."""

A_GUESS_COUNTS = 0.4
"""Of a vote. Counters are read once a second and steps may be shorter, so that the first frames of
a slowness come before the signal that explains it."""

FEWEST_MATES = 2
"""Healthy ranks on the same node, before their being well speaks for the node."""


@dataclass
class _File:
    """Of one slow rank."""

    own: Signals | None = None
    peers: Signals | None = None
    votes: dict[SlowCause, float] = field(default_factory=dict)
    told: SlowCause | None = None
    named: dict[SlowCause, Named] = field(default_factory=dict)
    """Cause -> as it was named last."""

    def vote(self, named: Named) -> Named:
        """The verdict after one more frame."""
        self.votes = {cause: FORGETS * votes for cause, votes in self.votes.items()}
        weight = 1.0 if named.is_measured else A_GUESS_COUNTS
        self.votes[named.cause] = self.votes.get(named.cause, 0.0) + weight
        self.named[named.cause] = named
        most = max(self.votes, key=lambda cause: self.votes[cause])
        if self.told is None or self.votes[most] > OUTVOTES * self.votes[self.told]:
            self.told = most
        return self.named[self.told]


@dataclass
class CauseFinder:
    """Follows the slow ranks of one attempt."""

    _files: dict[int, _File] = field(default_factory=dict)
    _census: GroupMembership = field(default_factory=GroupMembership)

    def follow(
        self,
        frame: StepFrame,
        places: Mapping[int, RankPlace],
        excesses: Sequence[Excess],
        findings: Sequence[Finding],
    ) -> dict[int, Named]:
        """Slow rank -> its cause, as it stands now."""
        slow = {excess.rank: excess for excess in excesses}
        self._files = {rank: self._files.get(rank, _File()) for rank in slow}
        if not slow:
            return {}
        self._census.read(places)
        company = _RolePeers(frame.lines, slow, self._census.by_role, self._census.by_node)
        steps = frame.step - frame.after_step
        verdicts = {}
        for rank, excess in slow.items():
            place = places.get(rank, RankPlace(rank, ""))
            file = self._files[rank]
            if rank in frame.lines:
                file.own = blend(file.own, read(frame.lines[rank]), steps)
                peers = company.healthy_beside(place)
                if peers is not None:
                    file.peers = blend(file.peers, peers, steps)
            if file.own is not None:
                witness = hear(findings, place, company.is_slow_together(place.node))
                case = SlowCase(excess, file.own, file.peers, witness)
                verdicts[rank] = file.vote(name_cause(case))
        return verdicts


@dataclass
class _RolePeers:
    """Who is well in this frame, by role and by node; worked out as it is asked for."""

    lines: Mapping[int, StepLine]
    slow: Mapping[int, Excess]
    by_role: Mapping[str, list[int]]
    by_node: Mapping[str, list[int]]
    _of_roles: dict[str, Signals | None] = field(default_factory=dict)
    _of_nodes: dict[tuple[str, str], Signals | None] = field(default_factory=dict)

    def healthy_beside(self, place: RankPlace) -> Signals | None:
        """The middle of its healthy peers, or of its node's where a signal is louder."""
        if place.role not in self._of_roles:
            healthy = self._well(self.by_role.get(place.role, ()))
            everyone = healthy or self._well(self.lines)
            self._of_roles[place.role] = middle(everyone)
        key = (place.node, place.role)
        if key not in self._of_nodes:
            mates = self._well(self.by_node.get(place.node, ()))
            self._of_nodes[key] = middle(mates) if len(mates) >= FEWEST_MATES else None
        return strongest(self._of_roles[place.role], self._of_nodes[key])

    def is_slow_together(self, node: str) -> bool:
        """Whether at least half of the node's ranks are slow."""
        ranks = self.by_node.get(node, [])
        return 2 * sum(rank in self.slow for rank in ranks) >= len(ranks)

    def _well(self, ranks: Iterable[int]) -> list[StepLine]:
        well = [rank for rank in ranks if rank not in self.slow and rank in self.lines]
        return [self.lines[rank] for rank in well[:: max(1, len(well) // SAMPLE)]]
