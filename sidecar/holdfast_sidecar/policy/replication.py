"""Which node keeps copies of which node's snapshots, which copy may be overwritten, and what became
of a peer order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.checkpoint import PeerOrder
from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.records.reports import NodeReport


@dataclass(frozen=True)
class Through:
    """Every puller has the step."""


@dataclass(frozen=True)
class ReplicationVoid:
    """The order came to nothing, and why."""

    reason: str


@dataclass(frozen=True)
class Moved:
    """The ranks copied it at a later boundary."""

    step: int


@dataclass(frozen=True)
class ReplicationPending:
    """Still under way."""


def sources(cluster: Cluster, plan: Plan) -> list[str]:
    """Members whose snapshots other nodes can fetch, so that their ranks can be brought back."""
    return sorted(m.node for m in plan.members if _address(cluster, m.node))


def holders(cluster: Cluster) -> dict[str, str]:
    """Nodes that can keep copies, spares too -> their failure domain.

    A member whose slots are made has reckoned whether copies fit beside them, and one without slots
    for want of memory has none for copies either; a spare has the memory of a member, and none of
    its ranks.
    """
    return {
        name: report.snapshot.failure_domain
        for name, report in sorted(cluster.nodes.items())
        if report.snapshot is not None
        and _address(cluster, name)
        and (report.snapshot.copies_fit or not (report.snapshot.slots or _lacks_memory(report)))
    }


def _lacks_memory(report: NodeReport) -> bool:
    return report.snapshot is not None and report.snapshot.short_of in ("memory", "shared_memory")


def _address(cluster: Cluster, node: str) -> str:
    """Where others call it; empty: nowhere, or nowhere that all of them reach."""
    report = cluster.nodes.get(node)
    if report is None or report.snapshot is None or not cluster.is_alive(node):
        return ""
    address = report.snapshot.peer_address
    machines = {agent.machine for agent in cluster.agents.values() if cluster.is_alive(agent.node)}
    return "" if len(machines) > 1 and is_loopback(address) else address


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches host:port."""
    host = address.rpartition(":")[0].strip("[]")
    return host == "localhost" or host == "::1" or host.startswith("127.")


def pair(
    sources: Collection[str], domains: Mapping[str, str], before: Mapping[str, str]
) -> dict[str, str]:
    """Source -> holder, each holder of one source, in another failure domain where that can be.

    domains: every possible holder -> its failure domain (empty: unknown, so its own). before: the
    pairs so far, which stay as long as all are there and new ones would be no better, because what
    a new holder has is less until it has fetched. Where holders are short, a source has no pair.
    """
    fresh = _in_turn(sources, domains)
    still = set(before) == set(fresh) and set(before.values()) <= set(domains)
    if still and _near(before, domains) <= _near(fresh, domains):
        return dict(before)
    return fresh


def _in_turn(sources: Collection[str], domains: Mapping[str, str]) -> dict[str, str]:
    """Nodes in a ring, domain by domain; each one's holder is as many places on as the largest
    domain has nodes. No other arrangement has fewer pairs inside a domain; without domains it is
    the next node."""
    by_fate = {node: domains.get(node) or f"only {node}" for node in {*sources, *domains}}
    ring = sorted(by_fate, key=lambda node: (by_fate[node], node))
    shift = max(Counter(by_fate.values()).values(), default=1)
    shift = 1 if shift == len(ring) else shift
    pairs = {}
    for place, node in enumerate(ring):
        holder = ring[(place + shift) % len(ring)]
        if node in sources and holder in domains and holder != node:
            pairs[node] = holder
    for node in sorted(set(sources) - set(pairs)):
        _place(node, pairs, [h for h in ring if h in domains and h not in pairs.values()], by_fate)
    return pairs


def _place(
    node: str, pairs: dict[str, str], free: Sequence[str], by_fate: Mapping[str, str]
) -> None:
    """Give a source whose turn fell on a node without room one that is free, or else another's."""
    able = [holder for holder in free if holder != node]
    if able:
        pairs[node] = min(able, key=lambda holder: by_fate[holder] == by_fate[node])
        return
    for other, holder in sorted(pairs.items()):
        if free and holder != node and other != free[0]:
            pairs[node], pairs[other] = holder, free[0]
            return


def _near(pairs: Mapping[str, str], domains: Mapping[str, str]) -> int:
    """How many pairs are known to fail together."""
    return sum(
        bool(domains[holder]) and domains.get(source) == domains[holder]
        for source, holder in pairs.items()
    )


@dataclass(frozen=True)
class Copy:
    """A sealed copy of one rank's snapshot."""

    attempt: int
    step: int


def copy_to_overwrite(
    copies: Mapping[int, Copy | None],
    attempt: int,
    through: int,
    *,
    settled: int = -1,
    may_be_newest: bool,
) -> int | None:
    """Which file of a rank's copies the next one goes into; None: none may be overwritten now.

    copies: file -> what is sealed in it (None: nothing). through: newest step of this attempt that
    is known to be safe on all ranks; -1: none. `may_be_newest`: a newer one than that may be the
    only one that all ranks have in common (with copies in step), so it stays, unless it is among
    those up to `settled`, of which none exists.
    """
    sealed = {file: copy for file, copy in copies.items() if copy is not None}
    if empty := sorted(copies.keys() - sealed.keys()):
        return empty[0]
    safe = {f: c for f, c in sealed.items() if c.attempt < attempt or c.step <= through}
    kept = max(safe, key=lambda f: (safe[f].attempt, safe[f].step), default=None)
    void = {f for f, c in sealed.items() if c.attempt == attempt and through < c.step <= settled}
    free = ((safe if may_be_newest else sealed).keys() - {kept}) | void
    return min(free, key=lambda f: (sealed[f].attempt, sealed[f].step), default=None)


def is_abandoned(copy: Copy, plan: Plan, resumed_step: int | None) -> bool:
    """Whether a copy lies on a branch that this attempt has left, so nobody may resume from it.

    resumed_step: where this attempt's ranks began; None: they have not begun yet.
    """
    if copy.attempt >= plan.attempt:
        return copy.attempt > plan.attempt  # of an earlier run, whose attempts had counted further
    if plan.state != "running":
        return False
    if not any(candidate.tier == "snapshot" for candidate in plan.resume):
        return True
    return resumed_step is not None and copy.step > resumed_step


def judge_peers(
    order: PeerOrder,
    plan: Plan,
    nodes: Mapping[str, NodeReport],
    lost: Collection[str],
    armed_for_s: float,
) -> Through | ReplicationVoid | Moved | ReplicationPending:
    """What became of an armed order."""
    if plan.attempt != order.attempt or plan.state != "running":
        return ReplicationVoid("the attempt ended")
    takes_part = order.pulls.keys() | set(order.pulls.values())
    if gone := sorted(takes_part & set(lost)):
        return ReplicationVoid(f"node {gone[0]} is lost")
    for node in sorted(takes_part):
        report = nodes.get(node)
        if report is None or report.snapshot is None:
            return ReplicationVoid(f"node {node} says nothing of snapshots")
        if report.snapshot.copied_for.get(order.identifier) == "void":
            return ReplicationVoid(f"node {node} has no snapshot of step {order.step}")
    step = _copied_at(order, nodes)
    if step is None:
        return ReplicationVoid("ranks came to different boundaries")
    if step != order.step:
        return Moved(step)
    if all(_has_pulled(nodes[holder], order) for holder in order.pulls.values()):
        return Through()
    if armed_for_s > order.deadline_s:
        late = [h for h in set(order.pulls.values()) if not _has_pulled(nodes[h], order)]
        return ReplicationVoid(f"node {min(late)} did not fetch it within {order.deadline_s:g} s")
    return ReplicationPending()


def _copied_at(order: PeerOrder, nodes: Mapping[str, NodeReport]) -> int | None:
    """The boundary at which all ranks copied, once they have; before, the armed step. None: they
    were out of step."""
    reports = [nodes[node].snapshot for node in order.pulls]
    if not all(r is not None and order.identifier in r.copied_for for r in reports):
        return order.step
    steps = {r.copied_step for r in reports if r is not None and r.copied_step >= 0}
    return min(steps, default=order.step) if len(steps) <= 1 else None


def _has_pulled(report: NodeReport, order: PeerOrder) -> bool:
    return report.snapshot is not None and report.snapshot.pulled == order.identifier


def ranks_of(plan: Plan, node: str) -> range:
    """The ranks that this node runs in this attempt."""
    return next((member.ranks for member in plan.members if member.node == node), range(0))


def copied_step(cluster: Cluster, plan: Plan) -> int | None:
    """Newest step of this attempt of which every rank's snapshot is on another node; None: none."""
    order = cluster.peer
    if order is None or order.attempt != plan.attempt:
        return None
    if order.state != "standing":
        return order.through if order.through >= 0 else None
    newest: dict[int, int] = {}
    for node in cluster.nodes.values():
        for rank, steps in (node.snapshot.copies if node.snapshot is not None else {}).items():
            newest[int(rank)] = max([newest.get(int(rank), -1), *steps])
    ranks = cluster.ranks(plan)
    began = max((rank.resumed_step for rank in ranks.values()), default=0)
    if len(ranks) < plan.world_size or not ranks:
        return None
    step = min(newest.get(rank, -1) for rank in ranks)
    return step if step > began else None  # else it may be of the attempt before


def lag_steps(cluster: Cluster, plan: Plan) -> int | None:
    """Steps that the loss of a node would cost now: from the copied one to the furthest rank; None:
    there are no copies."""
    step, ranks = copied_step(cluster, plan), cluster.ranks(plan).values()
    if step is None or not ranks:
        return None
    return max(0, max(rank.step for rank in ranks) - step)


# Whether a rank shall wait for another node to confirm its snapshots (peer copies in step).


@dataclass(frozen=True)
class ReplicaWait:
    """One rank's, as judged at one tick."""

    shall_wait: bool = True
    unsafe_since_s: float | None = None
    """Since when a sealed snapshot has been without confirmation; None: none is."""
    safe: int = -1
    """Newest confirmed step."""


def judge_peer_wait(
    before: ReplicaWait, sealed: int, safe: int, is_paired: bool, now_s: float, timeout_s: float
) -> ReplicaWait:
    """A rank waits as long as its partner keeps up.

    It is let go when nothing was confirmed for `timeout_s`, or nobody would confirm; and it waits
    again once the partner has all there is, so that one slow copy doesn't stop it time and again.
    """
    is_behind = sealed > safe
    since_s = before.unsafe_since_s
    if not is_behind:
        since_s = None
    elif since_s is None or safe > before.safe:
        since_s = now_s
    if not is_paired:
        shall_wait = False
    elif before.shall_wait:
        shall_wait = since_s is None or now_s - since_s < timeout_s
    else:
        shall_wait = not is_behind
    return ReplicaWait(shall_wait, since_s, safe)


# How many slots this node's ranks get, and whether there is room for copies of another node's.

COPIES_KEPT = 2
"""Of each rank of another node: one torn in the middle leaves the one before."""

LEAST_LEFT = 0.1
"""Of the memory that the job may use. Below it a job that goes on growing meets the OOM killer
within minutes; above it loaders and allocators breathe, and slots would come and go with them."""


@dataclass(frozen=True)
class SnapshotSpace:
    """What is free for snapshots, bytes. What they take already counts as free: it is theirs."""

    shared_memory: int | None
    """Of the shared-memory file system, the reserve beside the pages taken off; None: snapshots
    take none of it."""
    memory: int
    """That the machine can give without swapping."""
    control_group: int | None = None
    """Until the nearest limit of a control group; None: there is no limit."""

    @property
    def least(self) -> int:
        """What all of them allow."""
        shared = self._memory if self.shared_memory is None else self.shared_memory
        return max(0, min(shared, self._memory))

    @property
    def bound_by(self) -> str:
        """What allows least: `shared_memory` or `memory`."""
        is_memory = self.shared_memory is None or self._memory < self.shared_memory
        return "memory" if is_memory else "shared_memory"

    @property
    def _memory(self) -> int:
        if self.control_group is None:
            return self.memory
        return min(self.memory, self.control_group)


@dataclass(frozen=True)
class Margin:
    """What the job itself may still take, bytes: what snapshots hold is not counted as free."""

    free: int
    """Before the kernel kills somebody."""
    limit: int
    """Of the control group, or what the machine has."""


@dataclass(frozen=True)
class Wish:
    """What the settings ask for."""

    slots: int
    """Per rank."""
    share: float
    """Of the room that may be taken."""
    copies: bool = False
    """Whether other nodes are there, so that their snapshots may be copied here."""
    slots_for_copies: int = 0
    """More slots per rank where copies are made of them."""


@dataclass(frozen=True)
class MemoryPlan:
    """What was decided. `slots` 0: no snapshots here, checkpoints are written by the ranks."""

    rung: int
    """How far down the ladder it is; 0: all that was wished for."""
    slots: int
    copies: bool
    size_bytes: int
    """Of all slots and copies."""
    why: str
    """The reckoning in people's words."""
    short_of: str = ""
    """`shared_memory` or `memory` where it is less than wished; else empty."""


def plan_memory(
    wants: Sequence[int], room: SnapshotSpace, wish: Wish, failures: int = 0, given_up: int = 0
) -> MemoryPlan:
    """The first rung of the ladder that fits.

    wants: bytes of one slot, by rank of this node. failures: how many rungs could not be made,
    though they fitted a moment before. given_up: how many the job has taken for itself.
    """
    allowed = int(room.least * wish.share)
    rungs = list(_rungs(wish))
    first = max(failures, given_up)
    fit = [n for n, rung in enumerate(rungs) if n >= first and _size(wants, *rung) <= allowed]
    rung = fit[0] if fit else len(rungs) - 1
    slots, copies = rungs[rung]
    reckoning = _reckoning(wants, slots, copies, room)
    shortage, short_of = "", ""
    if given_up:
        shortage, short_of = _GROWN, "memory"
    elif rung > 0:
        shortage, short_of = _shortage(wants, rungs[0], wish, room), room.bound_by
    return MemoryPlan(
        rung=rung,
        slots=slots,
        copies=copies,
        size_bytes=_size(wants, slots, copies),
        why=reckoning + shortage,
        short_of=short_of,
    )


def rungs_given_up(plan: MemoryPlan, margin: Margin) -> int:
    """How many rungs the job shall have for itself, one more than this plan where little is left;
    0: it has enough, or snapshots take nothing that it could have."""
    is_short = margin.free < LEAST_LEFT * margin.limit
    return plan.rung + 1 if is_short and plan.size_bytes > 0 else 0


def gigabytes(size: float) -> str:
    """Bytes for people, two digits: `0.9 GB`, `32 MB`."""
    if size >= 0.1e9:
        return f"{size / 1e9:.1f} GB"
    return f"{size / 1e6:.1f} MB" if size < 10e6 else f"{size / 1e6:.0f} MB"


def _rungs(wish: Wish) -> Iterator[tuple[int, bool]]:
    """(slots, copies), best first: without copies, then with fewer slots, then none."""
    if wish.copies:
        yield wish.slots + wish.slots_for_copies, True
    for slots in range(wish.slots, -1, -1):
        yield slots, False


def _size(wants: Sequence[int], slots: int, copies: bool) -> int:
    """The node whose snapshots are copied here is taken to be like this one."""
    return sum(wants) * (slots + COPIES_KEPT * copies)


def _reckoning(wants: Sequence[int], slots: int, copies: bool, room: SnapshotSpace) -> str:
    free = f"of {gigabytes(room.least)} free"
    if slots == 0:
        return f"snapshots: none, {free}"
    each = gigabytes(max(wants))
    sides = [f"{_count(len(wants), 'rank')} x {_count(slots, 'slot')} x {each}"]
    if copies:
        sides.append(f"peer copies {gigabytes(COPIES_KEPT * sum(wants))}")
    whole = gigabytes(_size(wants, slots, copies))
    return f"snapshots: {' + '.join(sides)} = {whole} {free}"


_GROWN = (
    f"; less than {LEAST_LEFT:.0%} of its memory was left to the job, so snapshots take less until "
    "the next attempt"
)


def _shortage(wants: Sequence[int], best: tuple[int, bool], wish: Wish, room: SnapshotSpace) -> str:
    bound = "shared memory" if room.bound_by == "shared_memory" else "memory"
    needed = gigabytes(_size(wants, *best))
    return (
        f"; {_count(best[0], 'slot')}{' and peer copies' * best[1]} would take {needed}, and "
        f"{wish.share:.0%} of the free {bound} may be taken"
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
