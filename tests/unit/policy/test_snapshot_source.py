from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import pytest

from holdfast_sidecar.policy.checkpoint_choice import find_snapshot
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.checkpoint import SnapshotReport
from holdfast_sidecar.records.plan import Candidate, Incident, Member, Plan
from holdfast_sidecar.records.reports import AgentReport, NodeReport, RankReport

A, B, C = Member("a", "ia", 0, 0, 2), Member("b", "ib", 1, 2, 2), Member("c", "ic", 1, 2, 2)
BEFORE = Plan(3, 7, "ended", members=[A, B], world_size=4)
CRASH = Incident("i", 3, "crash")

Steps = Mapping[int, Sequence[int]]


def node(name: str, held: Steps | None = None, copies: Steps | None = None) -> NodeReport:
    snapshot = SnapshotReport(
        attempt=3,
        slots=3,
        held={str(rank): list(steps) for rank, steps in (held or {}).items()},
        copies={str(rank): list(steps) for rank, steps in (copies or {}).items()},
        peer_address="127.0.0.1:1",
    )
    return NodeReport(name, "s", 1, 3, 7, 3, True, snapshot=snapshot)


def cluster(*reports: NodeReport, lost: Sequence[str] = ()) -> Cluster:
    agents = {name: AgentReport(name, f"i{name}", "joining", 3, 1, 2, "h", 2, 2) for name in "abc"}
    return Cluster(
        agents=agents,
        nodes={report.node: report for report in reports},
        plan=BEFORE,
        lost=dict.fromkeys(lost, 9.0),
    )


IN_PLACE = cluster(node("a", {0: [9, 8], 1: [9, 8]}), node("b", {2: [8, 7], 3: [9, 8]}))


def found(job: Cluster, *members: Member, incident: Incident | None = CRASH) -> Candidate | None:
    return find_snapshot(job, members or (A, B), incident)


def test_ranks_that_stay_where_they_are_fetch_nothing() -> None:
    assert found(IN_PLACE) == Candidate("snapshot", "", 8, tier="snapshot", since=3)


def test_what_the_job_went_back_behind_does_not_count_however_often_it_falls_then() -> None:
    def since(before: Plan) -> int:
        candidate = found(dataclasses.replace(IN_PLACE, plan=before))
        assert candidate is not None
        return candidate.since

    first = dataclasses.replace(BEFORE, attempt=0)
    assert since(first) == 0
    again = dataclasses.replace(
        BEFORE, attempt=1, resume=[Candidate("snapshot", "", 8, "snapshot", since=0)]
    )
    assert since(again) == 0
    back = dataclasses.replace(BEFORE, attempt=2, resume=[Candidate("c", "/c", 4)])
    assert since(back) == 2
    further = dataclasses.replace(
        BEFORE, attempt=3, resume=[Candidate("snapshot", "", 8, "snapshot", since=2)]
    )
    assert since(further) == 2


def test_slots_that_nobody_has_told_of_yet_may_hold_one() -> None:
    candidate = found(cluster(node("a"), node("b", {2: [9], 3: [9]})))
    assert candidate == Candidate("snapshot", "", -1, tier="snapshot", since=3)


def test_ranks_that_never_had_slots_have_no_snapshot() -> None:
    bare = NodeReport("b", "s", 1, 3, 7, 3, True, snapshot=SnapshotReport(attempt=3, wants=True))
    assert found(cluster(node("a", {0: [9], 1: [9]}), bare)) is None
    assert found(cluster(node("a", {0: [9], 1: [9]}))) is None


@pytest.mark.parametrize(
    "incident",
    [
        None,
        Incident("i", 3, "nonfinite", onset_step=9),
        Incident("i", 3, "crash", onset_step=8),
        Incident("i", 3, "crash", onset_step=9, distrusts_from=4),
        Incident("i", 3, "crash", onset_step=9, is_of_script=True),
    ],
    ids=[
        "a first attempt",
        "bad numbers",
        "none before bad numbers",
        "a roll back",
        "an own error",
    ],
)
def test_there_is_none_for(incident: Incident | None) -> None:
    assert found(IN_PLACE, incident=incident) is None


def test_one_from_before_a_loss_that_was_not_finite_counts() -> None:
    """As of a step that a loss scaler passed over, in the moment when a rank was killed."""
    skipped = Incident("i", 3, "crash", onset_step=9)
    assert found(IN_PLACE, incident=skipped) == Candidate(
        "snapshot", "", 8, tier="snapshot", since=3, below=9
    )
    copied = cluster(
        node("a", {0: [9, 8], 1: [9, 8]}, copies={2: [9, 8], 3: [9, 8]}), node("c"), lost=["b"]
    )
    candidate = found(copied, A, C, incident=skipped)
    assert candidate is not None
    assert (candidate.step, candidate.below) == (8, 9)
    assert candidate.fetches == {"2": "a", "3": "a"}


def gone_on(furthest: int, onset: int = -1, reached: int = 0) -> Candidate | None:
    """After an attempt that was to go on from before step 9."""
    before = dataclasses.replace(
        BEFORE, resume=[Candidate("snapshot", "", 8, "snapshot", since=2, below=9)]
    )
    ranks = [RankReport(n, n % 2, 1, furthest, "forward", 0.0, 0.1, 0.1) for n in range(4)]
    nodes = {
        "a": dataclasses.replace(IN_PLACE.nodes["a"], ranks=ranks[:2]),
        "b": dataclasses.replace(IN_PLACE.nodes["b"], ranks=ranks[2:]),
    }
    job = dataclasses.replace(IN_PLACE, plan=before, nodes=nodes)
    return found(job, incident=Incident("i", 3, "crash", onset_step=onset, step_reached=reached))


def test_what_did_not_count_does_not_before_a_rank_came_past_it() -> None:
    """Until then none may have cleared its slots."""
    early, late, gone = gone_on(furthest=8), gone_on(furthest=9), gone_on(0, reached=9)
    assert early is not None
    assert late is not None
    assert gone == late, "of ranks that say nothing any more the incident tells"
    assert (early.below, late.below) == (9, None)


def test_numbers_that_go_wrong_again_and_no_later_are_of_the_state_before() -> None:
    assert gone_on(furthest=9, onset=9) is None
    later = gone_on(furthest=12, onset=12)
    assert later is not None
    assert later.below == 12


def test_another_number_of_ranks_has_none() -> None:
    assert found(IN_PLACE, A) is None
    assert found(IN_PLACE, A, dataclasses.replace(B, slots=1)) is None


def test_a_spare_fetches_the_copies_and_those_that_went_past_them_fetch_theirs() -> None:
    job = cluster(
        node("a", {0: [9, 8], 1: [9, 6]}, copies={2: [6, 5], 3: [6, 5]}),
        node("c", copies={0: [6, 5], 1: [6, 5]}),
        lost=["b"],
    )
    candidate = found(job, A, C)
    assert candidate is not None
    assert (candidate.step, candidate.fetches) == (6, {"0": "c", "2": "a", "3": "a"})


def test_the_newest_step_that_every_rank_can_get_is_taken() -> None:
    job = cluster(
        node("a", {0: [9, 8], 1: [9, 8]}, copies={2: [9], 3: [8]}),
        node("c", copies={2: [8]}),
        lost=["b"],
    )
    candidate = found(job, A, C)
    assert candidate is not None
    assert (candidate.step, candidate.fetches) == (8, {"2": "c", "3": "a"})


def test_what_a_node_gives_to_nobody_is_not_waited_for() -> None:
    """Copies are switched off: the slots of a node that is left out stay where they are."""

    def silent(report: NodeReport) -> NodeReport:
        assert report.snapshot is not None
        snapshot = dataclasses.replace(report.snapshot, peer_address="")
        return dataclasses.replace(report, snapshot=snapshot)

    ran = (node("a", {0: [9], 1: [9]}), node("b", {2: [9], 3: [9]}))
    assert found(cluster(*ran, node("c")), A, C) is not None
    assert found(cluster(*map(silent, ran), node("c")), A, C) is None
    assert found(cluster(*map(silent, ran)), A, B) is not None


def test_copies_that_died_with_their_node_are_none() -> None:
    job = cluster(
        node("a", {0: [9], 1: [9]}),
        node("b", {2: [9], 3: [9]}, copies={0: [9], 1: [9]}),
        node("c"),
        lost=["b"],
    )
    assert found(job, A, C) is None


def test_a_launcher_that_was_started_anew_has_lost_its_slots() -> None:
    again = dataclasses.replace(B, incarnation="other")
    stale = dataclasses.replace(node("b", {2: [9], 3: [9]}), launcher_pid=11)
    job = cluster(node("a", {0: [9, 6], 1: [9, 6]}, copies={2: [6], 3: [6]}), stale)
    candidate = found(job, A, again)
    assert candidate is not None
    assert (candidate.step, candidate.fetches) == (6, {"2": "a", "3": "a"})


def test_nodes_that_swap_places_fetch_from_each_other() -> None:
    first, second = dataclasses.replace(B, first_rank=0), dataclasses.replace(A, first_rank=2)
    candidate = found(IN_PLACE, first, second)
    assert candidate is not None
    assert (candidate.step, candidate.fetches) == (8, {"0": "a", "1": "a", "2": "b", "3": "b"})
