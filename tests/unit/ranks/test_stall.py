from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.ranks.scene import (
    child,
    closer,
    history,
    look,
    moment,
    peer,
    ranks,
    scrutiny,
    steps,
)
from tests.unit.ranks.test_arrival import STEP, standing, trace

from holdfast.contract.page import Ending, Phase
from holdfast_sidecar.config.settings import StallSettings
from holdfast_sidecar.linux.syscalls import ThreadWait, Where
from holdfast_sidecar.ranks.history import Descendant, Inspection, scrutinise
from holdfast_sidecar.ranks.observation import PeerRank, RankHistory, Ranks
from holdfast_sidecar.ranks.stall import (
    due_in_s,
    find_stalls,
    is_suspicious,
    stood_since_s,
    suspects,
)
from holdfast_sidecar.records.findings import Finding, Kind

SETTINGS = StallSettings()
LIMITED = StallSettings(act_after_s=120.0, data_stall_timeout_s=600.0)
"""What a user sets who would rather lose a slow rank than wait."""
NORMAL = steps(10, data=1, forward=20, backward=20, optimizer=2)


def judge(
    scene: Ranks,
    now_s: float,
    awake_since_s: float = float("-inf"),
    settings: StallSettings = SETTINGS,
) -> list[Finding]:
    return list(find_stalls(scene, settings, moment(now_s, awake_since_s)))


def stuck(
    now_s: float,
    phase: Phase = Phase.FORWARD,
    rank: int = 0,
    state: str = "S",
    turns_per_s: float = 0.0,
    ticks_per_s: float = 0.0,
) -> RankHistory:
    """A rank with a normal past that entered `phase` at 0 and has not moved since."""
    looks = [
        look(
            at_s,
            phase,
            rank=rank,
            state=state,
            records=NORMAL if at_s == 0.0 else (),
            turns=50 + int(turns_per_s * at_s),
            cpu_ticks=100 + int(ticks_per_s * at_s),
        )
        for at_s in (0.0, now_s / 2, now_s)
    ]
    return history(*looks)


def test_a_phase_within_its_usual_time_is_nothing() -> None:
    assert judge(ranks(stuck(0.9)), 0.9) == []


def test_silence_beyond_the_limit_is_a_stall_that_does_not_act() -> None:
    (finding,) = judge(ranks(stuck(1.5)), 1.5)
    assert (finding.kind, finding.acts, finding.ranks) == (Kind.STALL, False, [0])
    assert finding.since_unix_s == 1_000_000.0


def proven(scene: Ranks, proof: Inspection | None = None) -> Ranks:
    """The scene, with what closer looks showed of its ranks: by default a lock for ever."""
    return replace(scene, scrutinies=dict.fromkeys(scene.local, proof or scrutiny()))


def test_the_limit_follows_the_slowest_step_so_far() -> None:
    past = look(0.0, records=(*NORMAL, *steps(1, forward=4000)))
    assert judge(ranks(history(past, look(11.0))), 11.0) == []
    assert [f.kind for f in judge(ranks(history(past, look(15.0))), 15.0)] == [Kind.STALL]


def test_what_the_first_steps_took_does_not_hide_a_hang() -> None:
    compiling = steps(2, forward=60_000)
    past = look(0.0, records=(*compiling, *NORMAL))
    assert [f.kind for f in judge(ranks(history(past, look(1.5))), 1.5)] == [Kind.STALL]
    early = look(0.0, records=(*compiling, *NORMAL[:2]))
    assert judge(ranks(history(early, look(599.0))), 599.0) == []


def test_one_number_overrides_every_limit() -> None:
    settings = StallSettings(limit_s=30.0)
    for scene in (ranks(stuck(29.0)), ranks(stuck(29.0, Phase.EVALUATING))):
        assert list(find_stalls(scene, settings, moment(29.0))) == []
    for scene in (ranks(stuck(31.0)), ranks(stuck(31.0, Phase.EVALUATING))):
        assert [f.kind for f in find_stalls(scene, settings, moment(31.0))] == [Kind.STALL]


def test_a_slow_save_or_a_first_step_gets_its_own_allowance() -> None:
    assert judge(ranks(stuck(2099.0, Phase.SAVING)), 2099.0) == []
    assert judge(ranks(stuck(2101.0, Phase.SAVING)), 2101.0) != []
    for phase in (Phase.STARTING, Phase.RESTORING, Phase.COMPILING, Phase.EVALUATING):
        assert judge(ranks(stuck(599.0, phase)), 599.0) == []
        assert judge(ranks(stuck(601.0, phase)), 601.0) != []
    fresh = history(look(0.0, step=0), look(599.0, step=0))
    assert judge(ranks(fresh), 599.0) == []


EVERY_PHASE = [phase for phase in Phase if phase is not Phase.FINISHED]
A_DAY_S = 86_400.0


@pytest.mark.parametrize("phase", EVERY_PHASE)
@pytest.mark.parametrize("ticks_per_s", [0.0, 100.0], ids=["at rest", "a core at work"])
def test_silence_alone_never_acts_however_long_it_lasts(phase: Phase, ticks_per_s: float) -> None:
    """Alone, for one that computes, and when all peers wait as well, or instead."""
    silent = stuck(A_DAY_S, phase, ticks_per_s=ticks_per_s)
    for peers in ([], [peer(1, age_s=A_DAY_S)], [peer(1, "forward", A_DAY_S)]):
        (finding,) = judge(ranks(silent, peers=peers), A_DAY_S)
        assert (finding.kind, finding.ranks, finding.acts) == (Kind.STALL, [0], False)


def test_silence_alone_acts_after_the_limit_that_the_user_set() -> None:
    assert [f.acts for f in judge(ranks(stuck(119.0)), 119.0, settings=LIMITED)] == [False]
    assert [f.acts for f in judge(ranks(stuck(121.0)), 121.0, settings=LIMITED)] == [True]


@pytest.mark.parametrize("settings", [SETTINGS, LIMITED], ids=["no limit", "limits set"])
@pytest.mark.parametrize(
    "phase", [Phase.STARTING, Phase.RESTORING, Phase.COMPILING, Phase.DATA, Phase.FORWARD]
)
def test_before_the_first_step_only_proof_acts(phase: Phase, settings: StallSettings) -> None:
    """An index is built for an hour, or a kernel is tuned; a lock without an end is proof."""
    looks = [look(at_s, phase, step=0) for at_s in (0.0, 3600.0)]
    waiting = [peer(1, age_s=3600.0)]
    (finding,) = judge(ranks(history(*looks), peers=waiting), 3600.0, settings=settings)
    assert (finding.kind, finding.acts) == (Kind.STALL, False)
    (finding,) = judge(proven(ranks(history(*looks), peers=waiting)), 3600.0, settings=settings)
    assert (finding.kind, finding.acts) == (Kind.HANG, True)


def test_a_stopped_process_is_a_hang_half_a_second_beyond_its_phase() -> None:
    def stopped(now_s: float) -> RankHistory:
        return history(look(0.0, records=NORMAL), look(0.1, state="T"), look(now_s, state="T"))

    assert judge(ranks(stopped(0.5)), 0.5) == []
    (finding,) = judge(ranks(stopped(0.56)), 0.56)
    assert (finding.kind, finding.acts) == (Kind.HANG, True)
    assert "stopped (state T)" in finding.evidence[1]


def test_one_look_at_a_stopped_process_proves_nothing() -> None:
    once = history(look(0.0, records=NORMAL), look(0.7, state="T"))
    assert judge(ranks(once), 0.7) == []
    again = history(look(0.0, records=NORMAL), look(0.7, state="T"), look(0.8))
    assert judge(ranks(again), 0.8) == []


def test_a_stop_of_less_than_half_a_second_is_left_alone_however_long_the_phase_had_lasted() -> (
    None
):
    """It computes for a minute, as it never did, and somebody stops it for a moment."""
    before = [look(0.0, records=NORMAL), look(60.0)]
    for lasts_s, kind in ((0.4, Kind.STALL), (0.5, Kind.HANG)):
        now_s = 60.1 + lasts_s
        stopped = history(*before, look(60.1, state="T"), look(now_s, state="T"))
        (finding,) = judge(ranks(stopped, peers=[peer(1, age_s=50.0)]), now_s)
        assert (finding.kind, finding.acts) == (kind, kind is Kind.HANG)


def suspended(rank: int, until_s: float, now_s: float = 60.0) -> RankHistory:
    """Stopped from 10 s until then; at 60 s it is stopped still, or goes on again."""
    looks = [look(0.0, rank=rank, records=NORMAL)]
    looks += [look(at_s, rank=rank, state="T") for at_s in (10.0, until_s)]
    return history(*looks, look(now_s, rank=rank, state="T" if until_s == now_s else "S"))


def told_stopped(rank: int, ago_s: float) -> PeerRank:
    return replace(peer(rank, age_s=50.0), stopped_ago_s=ago_s)


@pytest.mark.parametrize(
    ("scene", "acts"),
    [
        (ranks(suspended(0, 60.0), suspended(1, 60.0)), False),
        (ranks(suspended(0, 60.0), suspended(1, 60.0), peers=[peer(2, age_s=49.0)]), False),
        (ranks(suspended(0, 60.0), suspended(1, 59.0)), False),
        (ranks(suspended(0, 60.0), peers=[told_stopped(1, 0.0)]), False),
        (ranks(suspended(0, 60.0), peers=[told_stopped(1, 3.0)]), False),
        (ranks(suspended(0, 60.0), suspended(1, 40.0)), True),
        (ranks(suspended(0, 60.0), stuck(60.0, Phase.BACKWARD, rank=1)), True),
        (ranks(suspended(0, 60.0), peers=[peer(1, age_s=49.0)]), True),
        (ranks(suspended(0, 60.0), peers=[told_stopped(1, 30.0)]), True),
        (ranks(suspended(0, 60.0)), True),
    ],
    ids=[
        "with all others of its node",
        "with all others of its node, for which another node waits",
        "the other was continued just now",
        "alone on its node, with all others of the job",
        "which were continued just now",
        "and was forgotten when the other was continued",
        "while the other waits",
        "while that of another node waits",
        "and was forgotten when that of another node was continued",
        "while nothing is known of the other",
    ],
)
def test_what_is_stopped_as_a_whole_is_suspended_and_one_rank_alone_hangs(
    scene: Ranks, acts: bool
) -> None:
    """Whatever closer looks make of where it was stopped: in a lock, say, with a stopped worker."""
    worker = replace(WORKER, state="T")
    for proof in (None, scrutiny(QUEUE, [worker])):
        found = judge(proven(scene, proof), 60.0)
        assert [f.kind for f in found if f.ranks == [0]] == [Kind.HANG if acts else Kind.STALL]
        assert any(f.acts for f in found) is acts


def test_the_only_rank_of_a_job_is_never_ended_for_being_stopped() -> None:
    alone = [look(at_s, world_size=1, state="T") for at_s in (0.0, 60.0, 6000.0)]
    assert not any(finding.acts for finding in judge(ranks(history(*alone)), 6000.0))


def test_a_debugger_is_no_hang() -> None:
    """Nor is the lock at which it found the rank, though all others wait for it."""
    for phase in (Phase.FORWARD, Phase.OPTIMIZER, Phase.DATA):
        scene = proven(ranks(stuck(40.0, phase, state="t"), peers=[peer(1, age_s=39.0)]))
        (finding,) = judge(scene, 40.0)
        assert (finding.kind, finding.acts) == (Kind.STALL, False)


def test_who_stops_before_the_first_steps_is_given_more_time() -> None:
    looks = [look(at_s, step=0, state="T") for at_s in (0.0, 2.0, 4.0)]
    assert judge(ranks(history(*looks)), 4.0) == []
    assert [f.kind for f in judge(ranks(history(*looks, look(6.0, step=0, state="T"))), 6.0)] == [
        Kind.HANG
    ]


def test_a_rank_that_all_peers_wait_for_and_that_never_runs_is_a_hang() -> None:
    scene = proven(ranks(stuck(2.0), peers=[peer(1, age_s=1.9)]))
    (finding,) = judge(scene, 2.0)
    assert (finding.kind, finding.acts, finding.ranks) == (Kind.HANG, True, [0])
    assert "waits for a lock that no other thread lets go" in finding.evidence[1]
    assert "1 of 1 peers wait" in finding.evidence[2]


def in_place(where: Where, ends_unaided_s: float = math.inf) -> Inspection:
    return scrutiny(main=ThreadWait(where, (1, 2, 3), ends_unaided_s))


@pytest.mark.parametrize(
    "proof",
    [
        in_place(Where.SLEEP, 1e6),
        in_place(Where.SIGNAL),
        scrutiny(children=[child(state="S", wait=ThreadWait(Where.QUEUE))]),
    ],
    ids=["a sleep of days", "a signal", "a child that waits for work"],
)
def test_waits_that_nothing_outside_ends_are_proof(proof: Inspection) -> None:
    scene = proven(ranks(stuck(2.0), peers=[peer(1)]), proof)
    assert [f.kind for f in judge(scene, 2.0)] == [Kind.HANG]


@pytest.mark.parametrize(
    "proof",
    [
        in_place(Where.NETWORK),
        in_place(Where.STORAGE),
        in_place(Where.QUEUE),
        in_place(Where.CHILD),
        in_place(Where.OTHER),
        in_place(Where.CPU),
        in_place(Where.SLEEP, 30.0),
        in_place(Where.SLEEP, 3600.0),
        in_place(Where.LOCK, 10.0),
        in_place(Where.LOCK, 1800.0),
        scrutiny(at_work="thread uploader waits for network"),
        scrutiny(children=[child(state="D")]),
        scrutiny(children=[child(state="S", wait=ThreadWait(Where.NETWORK))]),
        scrutiny(children=[child(cpu_ticks=100)], later=[child(cpu_ticks=200)]),
        scrutiny(children=[child(state="S")]),
        scrutiny(children=[child(state="t", wait=ThreadWait(Where.QUEUE))]),
        scrutiny(looks=1),
        scrutiny(main=None),
    ],
    ids=[
        "an upload",
        "a file",
        "a pipe",
        "a child",
        "something unknown",
        "nothing: it runs",
        "a pause between two tries",
        "a pause of an hour",
        "a lock that it gives up in time",
        "a lock that it gives up in half an hour",
        "a thread that uploads",
        "a child that waits for a disk",
        "a child that uploads",
        "a child that computes",
        "a child that may not be seen",
        "a child under a debugger",
        "seen only once",
        "a kernel that says nothing",
    ],
)
def test_what_may_go_on_by_itself_stays_a_stall_however_long_peers_wait(proof: Inspection) -> None:
    scene = proven(ranks(stuck(40.0), peers=[peer(1, age_s=39.0)]), proof)
    (finding,) = judge(scene, 40.0)
    assert (finding.kind, finding.acts) == (Kind.STALL, False)


@pytest.mark.parametrize(
    "scene",
    [
        proven(ranks(stuck(7.0, turns_per_s=3), peers=[peer(1)])),
        proven(ranks(stuck(7.0, ticks_per_s=30), peers=[peer(1)])),
        proven(ranks(stuck(7.0), peers=[peer(1, phase="forward", age_s=0.1)])),
        proven(ranks(stuck(7.0), peers=[peer(1, age_s=0.2)])),
        proven(ranks(stuck(7.0))),
        proven(ranks(stuck(7.0, Phase.DATA), peers=[peer(1)])),
        proven(ranks(stuck(7.0, Phase.IDLE), peers=[peer(1)])),
    ],
    ids=[
        "its main thread runs now and then",
        "it uses CPU time",
        "a peer does something else",
        "the peer only passes through its collective",
        "the other rank is unknown",
        "it fetches data",
        "it is between steps",
    ],
)
def test_without_positive_evidence_it_stays_a_stall(scene: Ranks) -> None:
    (finding,) = judge(scene, 7.0)
    assert (finding.kind, finding.acts) == (Kind.STALL, False)


def test_a_rank_that_stands_still_in_data_is_a_hang_after_half_a_minute() -> None:
    scene = proven(ranks(stuck(31.0, Phase.DATA), peers=[peer(1, age_s=30.0)]))
    assert [f.kind for f in judge(scene, 31.0)] == [Kind.HANG]


def busy(now_s: float, rank: int = 0, state: str = "S") -> RankHistory:
    looks = [
        look(at_s, Phase.IDLE, rank=rank, records=NORMAL, busy="rollout", state=state)
        for at_s in (0.0, now_s / 2, now_s)
    ]
    return history(*looks)


def test_whose_script_says_that_it_is_busy_is_not_suspected_nor_who_waits_for_it() -> None:
    """Not even of a lock without an end, nor at the user's limit; but it may not stand stopped."""
    waiting = stuck(A_DAY_S, Phase.COMMUNICATING, rank=1)
    scene = proven(ranks(busy(A_DAY_S), waiting))
    assert judge(scene, A_DAY_S, settings=LIMITED) == []
    assert suspects(scene, SETTINGS, moment(A_DAY_S)) == []
    assert due_in_s(ranks(busy(0.4)), SETTINGS, moment(0.4)) == math.inf
    told = replace(peer(0, "idle", A_DAY_S), is_busy=True)
    assert judge(ranks(waiting, peers=[told]), A_DAY_S) == []
    stopped = ranks(busy(60.0, state="T"), stuck(60.0, Phase.COMMUNICATING, rank=1))
    assert [f.ranks for f in judge(stopped, 60.0) if f.acts] == [[0]]


def test_beside_one_that_is_busy_nobody_is_proven_to_hang() -> None:
    """What the lock waits for may come from there."""
    rollout = replace(peer(1, "idle", 40.0), is_busy=True)
    scene = proven(ranks(stuck(40.0), peers=[rollout, peer(2, age_s=39.0)]))
    asked = replace(scene, traces={0: trace(0, standing(STEP))})
    assert not any(finding.acts for finding in judge(asked, 40.0))


WORKER = child(is_worker=True, state="S", wait=ThreadWait(Where.QUEUE))
QUEUE = ThreadWait(Where.QUEUE, (1, 2, 3))


@pytest.mark.parametrize(
    ("proof", "told"),
    [
        (scrutiny(main=ThreadWait(Where.STORAGE)), "waits for storage itself"),
        (
            scrutiny(ThreadWait(Where.CPU), [replace(WORKER, state="Z", exit_status=9)]),
            "computes itself",
        ),
        (scrutiny(QUEUE, [replace(WORKER, state="D")]), "is at work"),
        (scrutiny(QUEUE, [WORKER], [replace(WORKER, cpu_ticks=300)]), "is at work"),
        (scrutiny(QUEUE, [WORKER], [replace(WORKER, transferred=9)]), "is at work"),
        (scrutiny(QUEUE, at_work="thread prefetch waits for network"), "thread prefetch"),
    ],
    ids=[
        "itself",
        "itself, beside an old corpse",
        "a worker at a disk",
        "a worker on a CPU",
        "a worker that reads",
        "a thread",
    ],
)
def test_a_loader_at_work_is_a_data_stall_and_is_waited_for(proof: Inspection, told: str) -> None:
    scene = proven(ranks(stuck(1.1, Phase.DATA), peers=[peer(1)]), proof)
    (finding,) = judge(scene, 1.1)
    assert (finding.kind, finding.acts) == (Kind.DATA_STALL, False)
    assert told in finding.evidence[1]
    for age_s, settings, acts in (
        (A_DAY_S, SETTINGS, False),
        (599.0, LIMITED, False),
        (601.0, LIMITED, True),
    ):
        later = proven(ranks(stuck(age_s, Phase.DATA), peers=[peer(1)]), proof)
        found = judge(later, age_s, settings=settings)
        assert [(f.kind, f.acts) for f in found] == [(Kind.DATA_STALL, acts)]


def test_a_loader_whose_worker_is_stopped_or_was_killed_is_a_hang() -> None:
    killed = replace(WORKER, state="Z", exit_status=9)
    for worker, told in ((replace(WORKER, state="T"), "is stopped"), (killed, "ended by signal 9")):
        scene = proven(ranks(stuck(1.1, Phase.DATA)), scrutiny(QUEUE, [worker]))
        (finding,) = judge(scene, 1.1)
        assert (finding.kind, finding.acts) == (Kind.HANG, True)
        assert told in finding.evidence[1]


def test_a_stopped_child_of_a_rank_that_makes_its_batches_itself_is_no_hang() -> None:
    stopped = replace(WORKER, state="T")
    for where in (Where.CPU, Where.NETWORK, Where.STORAGE, Where.SLEEP):
        proof = scrutiny(ThreadWait(where, (1, 2, 3)), [stopped])
        (finding,) = judge(proven(ranks(stuck(1.1, Phase.DATA)), proof), 1.1)
        assert not finding.acts


@pytest.mark.parametrize(
    "children",
    [
        [],
        [WORKER],
        [replace(WORKER, state="Z", exit_status=0)],
        [replace(WORKER, state="Z", exit_status=9, is_worker=False)],
        [replace(WORKER, state="T", is_worker=False)],
    ],
    ids=["none", "one that rests", "one that ended well", "another program's end", "and its stop"],
)
def test_a_loader_of_which_nothing_is_seen_is_only_silent(children: list[Descendant]) -> None:
    scene = proven(ranks(stuck(1.1, Phase.DATA)), scrutiny(QUEUE, children))
    assert [(f.kind, f.acts) for f in judge(scene, 1.1)] == [(Kind.STALL, False)]


def test_of_a_dead_process_beside_a_loader_it_is_seen_first_whether_that_rests() -> None:
    """A helper that failed long ago, and a worker whose wait for storage a look may miss."""
    dead = replace(WORKER, state="Z", exit_status=256, name="python")
    rests, works = replace(WORKER, pid=8), replace(WORKER, pid=8, state="D")
    looks = [
        closer(number / 5, QUEUE, [dead, works if number % 3 else rests]) for number in range(31)
    ]
    known = None
    for one in looks:
        known = scrutinise(known, one)
        (finding,) = judge(proven(ranks(stuck(7.0, Phase.DATA)), known), 7.0)
        assert not finding.acts
    stopped = scrutiny(QUEUE, [replace(dead, state="T"), works])
    assert not any(one.acts for one in judge(proven(ranks(stuck(7.0, Phase.DATA)), stopped), 7.0))


def test_a_stopped_worker_beside_one_at_work_is_no_hang() -> None:
    """The batch that the rank waits for may be that one's."""
    stopped = replace(WORKER, state="T", name="pt_data_worker")
    busy = replace(WORKER, pid=8, state="D")
    scene = proven(ranks(stuck(7.0, Phase.DATA)), scrutiny(QUEUE, [stopped, busy]))
    assert [(f.kind, f.acts) for f in judge(scene, 7.0)] == [(Kind.DATA_STALL, False)]


def test_a_rank_that_moves_bytes_is_at_work_whatever_its_threads_seem_to_wait_for() -> None:
    known = None
    for number in range(8):
        known = scrutinise(known, replace(closer(number / 2), transferred=100_000 * number))
    (finding,) = judge(proven(ranks(stuck(40.0), peers=[peer(1, age_s=39.0)]), known), 40.0)
    assert (finding.kind, finding.acts) == (Kind.STALL, False)
    for number in range(8, 16):  # an answer about its collectives now and then is no work
        known = scrutinise(known, replace(closer(number / 2), transferred=800_000 + number * 9_000))
    (finding,) = judge(proven(ranks(stuck(40.0), peers=[peer(1, age_s=39.0)]), known), 40.0)
    assert (finding.kind, finding.acts) == (Kind.HANG, True)


def test_a_dead_worker_beside_one_at_work_is_no_hang() -> None:
    dead = replace(WORKER, state="Z", exit_status=9)
    busy = replace(WORKER, pid=8, state="D")
    scene = proven(ranks(stuck(1.1, Phase.DATA)), scrutiny(QUEUE, [dead, busy]))
    assert [f.kind for f in judge(scene, 1.1)] == [Kind.DATA_STALL]


@pytest.mark.parametrize("phase", [Phase.BACKWARD, Phase.COMMUNICATING])
def test_a_rank_that_waits_in_a_collective_is_never_the_culprit(phase: Phase) -> None:
    victim, culprit = stuck(121.0, phase, rank=0), stuck(121.0, rank=1)
    findings = {f.ranks[0]: f for f in judge(proven(ranks(victim, culprit)), 121.0)}
    assert findings[0].kind is Kind.STALL
    assert not findings[0].acts
    assert findings[1].kind is Kind.HANG
    assert findings[1].confidence > findings[0].confidence


def test_when_everybody_waits_and_nobody_is_missing_silence_acts_at_the_users_limit_alone() -> None:
    scene = ranks(stuck(121.0, Phase.COMMUNICATING), peers=[peer(1, age_s=121.0)])
    for settings, acts in ((SETTINGS, False), (LIMITED, True)):
        (finding,) = judge(scene, 121.0, settings=settings)
        assert (finding.kind, finding.acts) == (Kind.STALL, acts)


def test_two_ranks_that_hang_together_are_both_named() -> None:
    scene = proven(ranks(stuck(7.0, rank=0), stuck(7.0, rank=1), peers=[peer(2)]))
    asked = replace(scene, traces={rank: trace(rank, standing(STEP)) for rank in (0, 1)})
    assert [f.kind for f in judge(asked, 7.0)] == [Kind.HANG, Kind.HANG]


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, Kind.HANG),
        ({"standings": [standing(STEP, 2)]}, Kind.STALL),
        ({"messages_to": [1]}, Kind.STALL),
        ({"told_standing": False}, Kind.STALL),
        ({"answered": False}, Kind.STALL),
    ],
    ids=["it waits in none", "in one", "for a message", "asked too early", "it can't be asked"],
)
def test_a_rank_that_may_wait_in_a_collective_that_no_hook_sees_is_no_hang(
    changes: dict[str, Any], kind: Kind
) -> None:
    """In FSDP's forward pass, say, for a rank that uploads: both are silent, a third one waits."""
    scene = proven(ranks(stuck(7.0), peers=[peer(1, "forward", 7.0), peer(2)]))
    asked = replace(scene, traces={0: trace(0, standing(STEP), **changes)})
    (finding,) = judge(asked, 7.0)
    assert (finding.kind, finding.acts) == (kind, kind is Kind.HANG)


def test_who_finished_or_is_gone_does_not_stall() -> None:
    finished = history(look(0.0, records=NORMAL), look(500.0, ending=Ending.FINISHED))
    gone = history(look(0.0, records=NORMAL), look(500.0, is_gone=True))
    assert judge(ranks(finished), 500.0) == judge(ranks(gone), 500.0) == []


def test_a_loop_that_overslept_counts_from_its_waking() -> None:
    assert judge(ranks(stuck(300.0)), 300.0, awake_since_s=299.5) == []
    (finding,) = judge(ranks(stuck(300.0)), 300.0, awake_since_s=298.0)
    assert not finding.acts


def test_closer_looks_are_for_those_that_soon_pass_their_limit_and_wait_for_nobody() -> None:
    def looked_at(scene: Ranks, now_s: float) -> list[int]:
        return [look.rank for look in suspects(scene, SETTINGS, moment(now_s))]

    assert looked_at(ranks(stuck(0.4)), 0.4) == []
    assert looked_at(ranks(stuck(0.6)), 0.6) == [0]
    assert looked_at(ranks(stuck(0.6, Phase.BACKWARD), stuck(0.6, rank=1)), 0.6) == [1]
    assert looked_at(ranks(history(look(0.0), look(9.0, is_gone=True))), 9.0) == []


def test_the_next_look_comes_when_a_silence_passes_its_limit() -> None:
    def due(scene: Ranks, now_s: float) -> float:
        return due_in_s(scene, SETTINGS, moment(now_s))

    assert due(ranks(stuck(0.4)), 0.4) == pytest.approx(0.5)
    assert due(ranks(stuck(0.4, Phase.SAVING)), 0.4) == pytest.approx(2099.6)
    assert due(ranks(stuck(1.1)), 1.1) == math.inf
    assert due(ranks(), 1.1) == math.inf


def test_suspicion_asks_for_closer_looks_until_it_is_decided() -> None:
    def suspicious(scene: Ranks, now_s: float) -> bool:
        return is_suspicious(scene, SETTINGS, moment(now_s))

    assert not suspicious(ranks(stuck(0.5)), 0.5)
    assert suspicious(ranks(history(look(0.0, records=NORMAL), look(0.3, state="T"))), 0.3)
    assert suspicious(ranks(stuck(1.5)), 1.5)
    assert not suspicious(ranks(stuck(60.0)), 60.0)
    decided = history(look(0.0, records=NORMAL), look(0.3, state="T"), look(2.0, state="T"))
    assert not suspicious(ranks(decided), 2.0)


def died(at_s: float, seen_until_s: float, ending: Ending = Ending.RUNNING) -> RankHistory:
    """A rank that came into its phase at 0, was last seen alive then, and dead at `at_s`."""
    alive = [look(0.0, records=NORMAL), look(seen_until_s)]
    return history(*alive, look(at_s, is_gone=True, ending=ending))


def test_of_one_that_died_it_is_known_whether_it_had_been_silent_for_too_long() -> None:
    assert stood_since_s(died(20.0, 19.9), SETTINGS, moment(21.0)) == 0.0
    assert stood_since_s(died(0.5, 0.4), SETTINGS, moment(21.0)) is None
    assert stood_since_s(died(20.0, 19.9, Ending.FINISHED), SETTINGS, moment(21.0)) is None
    assert stood_since_s(stuck(20.0), SETTINGS, moment(20.0)) is None


def test_whoever_slept_does_not_know_how_long_one_had_been_silent_that_died_meanwhile() -> None:
    woken = moment(21.0, awake_since_s=20.0)
    assert stood_since_s(died(20.0, 0.1), SETTINGS, woken) is None


def test_silence_is_told_since_the_last_progress_though_it_is_judged_by_what_was_seen() -> None:
    (finding,) = judge(ranks(stuck(300.0)), 300.0, awake_since_s=298.0)
    assert finding.since_unix_s == 1_000_000.0
