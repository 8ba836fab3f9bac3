from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.ranks import scene
from tests.unit.ranks.test_arrival import PAST, STEP, counted, mute, standing, trace

from holdfast.contract.page import Ending, Phase
from holdfast_sidecar.config.settings import StallSettings
from holdfast_sidecar.linux.syscalls import ThreadWait, Where
from holdfast_sidecar.ranks.arrival import (
    concerned,
    is_doubtful,
    judge_collectives,
    note_rest,
    overdue,
    settle,
)
from holdfast_sidecar.ranks.history import Inspection
from holdfast_sidecar.ranks.observation import PeerRank, RankHistory, Ranks
from holdfast_sidecar.ranks.stall import find_stalls
from holdfast_sidecar.records.collectives import RankTrace
from holdfast_sidecar.records.findings import Finding, Kind

SETTINGS = StallSettings()
LIMITED = StallSettings(act_after_s=120.0)
PAST_STEPS = scene.steps(10, forward=20, backward=20, communicating=20)


def rank(
    number: int,
    phase: Phase = Phase.BACKWARD,
    since_s: float = 0.0,
    at_s: float = 5.0,
    ending: Ending = Ending.RUNNING,
) -> RankHistory:
    first = scene.look(0.0, phase, since_s, number, records=PAST_STEPS, ending=ending)
    return scene.history(first, replace(first, at_s=at_s, records=()))


def waiting(number: int, **changes: object) -> RankTrace:
    return trace(number, standing([*PAST, STEP[0]], 12), size=3, **changes)


def absent(number: int, **changes: object) -> RankTrace:
    return trace(number, standing(PAST), size=3, **({"is_overdue": False} | changes))


def parted(number: int, **changes: object) -> RankTrace:
    return trace(number, standing([*PAST, STEP[1]], 12), size=3, **changes)


def job(*histories: RankHistory, traces: list[RankTrace], peers: list[PeerRank]) -> Ranks:
    ranks = scene.ranks(*histories, peers=peers)
    asked = replace(ranks, traces={one.rank: one for one in traces})
    return replace(asked, arrival=judge_collectives(asked))


def judged(ranks: Ranks, at_s: float = 5.0, settings: StallSettings = SETTINGS) -> list[Finding]:
    moment = scene.moment(at_s)
    return settle(find_stalls(ranks, settings, moment), ranks, settings, moment)


@pytest.fixture
def three_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scenes are of three ranks."""
    identity = scene.identity
    monkeypatch.setattr(scene, "identity", lambda rank=0, world_size=2: identity(rank, 3))


pytestmark = pytest.mark.usefixtures("three_world")


def test_victims_are_not_told_once_it_is_known_for_whom_they_wait() -> None:
    ranks = job(
        rank(0),
        rank(1),
        traces=[waiting(0), waiting(1), absent(2)],
        peers=[scene.peer(2, "forward", 5.0)],
    )
    assert judged(ranks) == []


def test_without_traces_nothing_of_what_was_found_changes() -> None:
    ranks = scene.ranks(rank(0), peers=[scene.peer(1), scene.peer(2, "forward", 5.0)])
    moment = scene.moment(5.0)
    found = list(find_stalls(ranks, SETTINGS, moment))
    assert found
    assert settle(found, ranks, SETTINGS, moment) == found


def test_the_culprit_is_told_with_what_the_collectives_say_and_not_acted_on_for_silence() -> None:
    ranks = job(
        rank(2, Phase.FORWARD),
        traces=[waiting(0), waiting(1), absent(2)],
        peers=[scene.peer(0, "backward"), scene.peer(1, "backward")],
    )
    (finding,) = judged(ranks)
    assert (finding.kind, finding.ranks, finding.acts) == (Kind.STALL, [2], False)
    assert "which rank 2 has not entered" in finding.evidence[-1]


def test_a_culprit_whose_own_silence_is_usual_is_told_for_its_peers_sake() -> None:
    """One rank evaluates, which may take its time; the others wait longer than ever."""
    ranks = job(
        rank(2, Phase.EVALUATING),
        traces=[waiting(0), waiting(1), absent(2)],
        peers=[scene.peer(0, "backward"), scene.peer(1, "backward")],
    )
    (finding,) = judged(ranks)
    assert (finding.kind, finding.ranks, finding.acts) == (Kind.STALL, [2], False)
    nobody_late = [waiting(0, is_overdue=False), waiting(1, is_overdue=False), absent(2)]
    assert judged(job(rank(2, Phase.EVALUATING), traces=nobody_late, peers=[])) == []


def test_collectives_that_can_never_meet_are_positive_evidence() -> None:
    peers = [scene.peer(0, "backward"), scene.peer(1, "backward")]
    moving = [waiting(0), waiting(1, stands=False), parted(2)]
    (early,) = judged(job(rank(2), traces=moving, peers=peers))
    assert (early.kind, early.acts) == (Kind.STALL, False)
    (finding,) = judged(job(rank(2), traces=[waiting(0), waiting(1), parted(2)], peers=peers))
    assert (finding.kind, finding.ranks, finding.acts) == (Kind.HANG, [2], True)
    assert finding.confidence == 0.95
    assert finding.evidence[0].startswith("rank 2 entered all_reduce of Float x 8 as no. 13")


def by_nccl(one: RankTrace) -> RankTrace:
    return replace(one, standings=[replace(each, backend="nccl") for each in one.standings])


@pytest.mark.parametrize(
    "traces",
    [
        [waiting(0), waiting(1), parted(2)],
        [waiting(0), waiting(1), mute(2, size=3)],
        [waiting(0), waiting(1), absent(2)],
    ],
    ids=["parted", "finished", "absent"],
)
def test_what_nccls_numbers_prove_is_told_and_its_own_timeout_waited_for(
    traces: list[RankTrace],
) -> None:
    """The same on gloo is acted on at once."""
    peers = [scene.peer(0, "backward"), scene.peer(1, "backward")]
    is_finished = not traces[2].answered
    mine = rank(2, Phase.FINISHED, ending=Ending.FINISHED) if is_finished else rank(2)

    def found(traces: list[RankTrace], at_s: float, settings: StallSettings) -> Finding:
        late = replace(mine, look=replace(mine.look, at_s=at_s))
        ranks = job(late, traces=traces, peers=peers)
        (finding,) = judged(replace(ranks, scrutinies={2: scene.scrutiny()}), at_s, settings)
        return finding

    assert found(traces, 5.0, SETTINGS).acts
    on_gpus = [by_nccl(one) for one in traces]
    told = found(on_gpus, 3600.0, SETTINGS)
    assert (told.kind, told.ranks, told.acts) == (Kind.HANG, [2], False)
    assert "stall.nccl_act_after_s" in told.evidence[-1]
    sooner = StallSettings(nccl_act_after_s=60.0)
    assert [found(on_gpus, at_s, sooner).acts for at_s in (59.0, 61.0)] == [False, True]


def test_a_rank_at_work_is_not_ended_for_what_it_has_started_and_does_not_wait_for() -> None:
    """It started a collective that the others did not, and evaluates."""
    peers = [scene.peer(0, "backward"), scene.peer(1, "backward")]
    for turns, kind in ((90, Kind.STALL), (50, Kind.HANG)):
        mine = rank(2, Phase.EVALUATING)
        process = replace(mine.look.process, main_thread_turns=turns)  # type: ignore[type-var]
        mine = scene.history(
            rank(2, Phase.EVALUATING, at_s=3.0).look, replace(mine.look, process=process)
        )
        (finding,) = judged(job(mine, traces=[waiting(0), waiting(1), parted(2)], peers=peers))
        assert (finding.kind, finding.acts) == (kind, kind is Kind.HANG)


def test_ranks_that_await_messages_of_each_other_are_told_and_not_acted_on() -> None:
    """The pipeline's next stage compiles, say: what it asked for ahead is not what it waits for."""
    first = trace(0, standing(PAST), messages_to=[1], size=2)
    second = trace(1, standing(PAST), messages_to=[0], size=2)
    ranks = job(rank(0, Phase.COMMUNICATING), rank(1), traces=[first, second], peers=[])
    findings = judged(ranks)
    assert [(one.kind, one.ranks, one.acts) for one in findings] == [
        (Kind.STALL, [0], False),
        (Kind.STALL, [1], False),
    ]


def test_who_ended_while_others_wait_for_it_is_a_hang_though_it_is_not_silent_itself() -> None:
    gone = rank(2, Phase.FINISHED, ending=Ending.FINISHED)
    ranks = job(gone, traces=[waiting(0), waiting(1), mute(2, size=3)], peers=[])
    (finding,) = judged(ranks)
    assert (finding.kind, finding.ranks, finding.acts) == (Kind.HANG, [2], True)


def test_who_left_by_exit_code_0_without_a_word_is_one_that_ended() -> None:
    first = scene.look(0.0, Phase.FORWARD, 0.0, 2, records=PAST_STEPS)
    gone = scene.history(first, replace(first, at_s=5.0, records=(), is_gone=True, exit_code=0))
    ranks = job(gone, traces=[waiting(0), waiting(1), mute(2, size=3)], peers=[])
    (finding,) = judged(ranks)
    assert (finding.kind, finding.ranks, finding.acts) == (Kind.HANG, [2], True)
    assert "rank 2 ended without having entered it" in " ".join(finding.evidence)


@pytest.mark.parametrize("settings", [SETTINGS, LIMITED], ids=["by default", "with a limit"])
def test_the_silence_of_those_that_may_wait_for_one_that_ended_acts_at_the_users_limit(
    settings: StallSettings,
) -> None:
    """Nobody else would: the one that is named is gone."""
    pending = standing([*PAST, "gather"], 12)
    traces = [trace(0, pending, size=3), trace(1, pending, size=3), mute(2, size=3)]
    ended = replace(scene.peer(2, "finished"), has_ended=True)
    peers = [scene.peer(1, "communicating", 121.0), ended]
    for at_s, acts in ((119.0, False), (121.0, settings is LIMITED)):
        ranks = job(rank(0, Phase.COMMUNICATING, at_s=at_s), traces=traces, peers=peers)
        (finding,) = judged(ranks, at_s, settings)
        assert (finding.kind, finding.ranks, finding.acts) == (Kind.STALL, [0], acts)


def left_without_a_word(number: int, at_s: float) -> RankHistory:
    """By `os._exit(0)` in forward."""
    first = scene.look(0.0, Phase.FORWARD, 0.0, number, records=PAST_STEPS)
    gone = replace(first, at_s=at_s, records=(), is_gone=True, exit_code=0)
    return scene.history(first, gone)


GATHERING = standing([*PAST, "gather"], 12)
RECORDED = [trace(0, GATHERING, size=3), trace(1, GATHERING, size=3), mute(2, size=3)]
COUNTED = [counted(0, 9, 8, is_overdue=True), counted(1, 9, 8), counted(2, 8, 8)]


@pytest.mark.parametrize("traces", [RECORDED, COUNTED], ids=["recorded", "counted"])
@pytest.mark.parametrize("at_s", [119.0, 121.0])
def test_so_does_that_of_those_beside_one_that_left_without_a_word(
    traces: list[RankTrace], at_s: float
) -> None:
    waiting = [rank(number, Phase.COMMUNICATING, at_s=at_s) for number in (0, 1)]
    ranks = job(*waiting, left_without_a_word(2, at_s), traces=traces, peers=[])
    for settings, acts in ((SETTINGS, False), (LIMITED, at_s > LIMITED.act_after_s)):
        found = {one.ranks[0]: one.acts for one in judged(ranks, at_s, settings)}
        assert found == {0: acts, 1: acts, 2: False}


def test_nothing_comes_to_those_that_cross_from_one_that_left_without_a_word() -> None:
    at_s = 121.0
    crossing_ranks = [rank(number, Phase.COMMUNICATING, at_s=at_s) for number in (0, 1)]
    told = [crossing(0), crossing(1)]
    ranks = job(*crossing_ranks, left_without_a_word(2, at_s), traces=told, peers=[])
    for settings, acts in ((SETTINGS, False), (LIMITED, True)):
        found = [(one.ranks, one.acts) for one in judged(ranks, at_s, settings)]
        assert found == [([0], acts), ([1], acts)]


def test_a_rank_that_provably_stands_where_others_seem_to_wait_is_a_hang() -> None:
    """A hook of the backward pass waits for a lock: its phase alone would make it a victim."""
    peers = [scene.peer(0, "backward"), scene.peer(1, "backward")]
    ranks = job(rank(2), traces=[waiting(0), waiting(1), absent(2)], peers=peers)
    (silent,) = judged(ranks)
    assert (silent.kind, silent.acts) == (Kind.STALL, False)
    scrutiny = scene.scrutiny()
    (finding,) = judged(replace(ranks, scrutinies={2: scrutiny}))
    assert (finding.kind, finding.ranks, finding.acts) == (Kind.HANG, [2], True)
    receiving = rank(2, Phase.COMMUNICATING)
    messaging = replace(ranks, scrutinies={2: scrutiny}, local={2: receiving})
    assert [finding.acts for finding in judged(messaging)] == [False]
    worked = replace(ranks.local[2], still_since=ranks.local[2].look)
    at_work = replace(ranks, scrutinies={2: scrutiny}, local={2: worked})
    assert [finding.acts for finding in judged(at_work)] == [False]


def test_nobody_is_told_while_the_one_that_is_waited_for_is_busy_as_its_script_says() -> None:
    first = scene.look(0.0, Phase.IDLE, 0.0, 2, records=PAST_STEPS, busy="rollout")
    mine = scene.history(first, replace(first, at_s=5.0, records=()))
    traces = [waiting(0), waiting(1), absent(2)]
    peers = [scene.peer(0, "backward"), scene.peer(1, "backward")]
    assert judged(job(mine, traces=traces, peers=peers)) == []
    there = replace(scene.peer(2, "idle"), is_busy=True)
    in_fsdp = rank(0, Phase.FORWARD)  # its collectives are in no phase of theirs
    assert judged(job(in_fsdp, traces=traces, peers=[scene.peer(1, "backward"), there])) == []


def test_a_rank_that_crashed_is_no_stall() -> None:
    first = scene.look(0.0, Phase.FORWARD, 0.0, 2, records=PAST_STEPS)
    gone = scene.history(first, replace(first, at_s=5.0, records=(), is_gone=True))
    assert judged(job(gone, traces=[waiting(0), waiting(1), mute(2, size=3)], peers=[])) == []


def test_a_rank_that_others_wait_for_is_looked_at_closely_whatever_its_phase() -> None:
    ranks = job(rank(2), traces=[waiting(0), waiting(1), absent(2)], peers=[])
    (look,) = concerned(ranks, [])
    assert look.rank == 2
    assert concerned(ranks, [look]) == []


def crossing(number: int, **changes: Any) -> RankTrace:
    """Rank 0 waits in one group, rank 1 in the other."""
    here, there = (13, 12) if number == 0 else (12, 13)
    standings = standing([*PAST, STEP[0]][:here], 12), standing([*PAST, STEP[0]][:there], 12, "1")
    return trace(number, *standings, groups={"0": 2, "1": 2}, **changes)


def crossed(
    looks: Inspection | None = None,
    phase: Phase = Phase.BACKWARD,
    at_s: float = 5.0,
    **changes: object,
) -> Ranks:
    """Rank 0 is of this node; what the other node said of rank 1 proves that this one rests."""
    traces = [crossing(0, **changes), crossing(1, rests=True)]
    ranks = job(rank(0, phase, at_s=at_s), traces=traces, peers=[scene.peer(1, "backward")])
    return replace(ranks, scrutinies={} if looks is None else {0: looks})


def test_ranks_that_rest_in_different_groups_are_a_hang() -> None:
    ranks = crossed(scene.scrutiny())
    assert [look.rank for look in concerned(ranks, [])] == [0]
    assert not any(finding.acts for finding in judged(ranks))
    resting = note_rest(ranks)
    assert resting.traces[0].rests
    (finding,) = judged(resting)
    assert (finding.kind, finding.ranks, finding.acts) == (Kind.HANG, [0], True)


MESSAGE = ThreadWait(Where.LOCK, (202, 1, 1), 1800.0)
"""gloo waits for a message until the group's timeout, and for a collective without an end."""


@pytest.mark.parametrize(
    "ranks",
    [
        crossed(),
        crossed(scene.scrutiny(main=ThreadWait(Where.CPU))),
        crossed(scene.scrutiny(main=ThreadWait(Where.DEVICE, (7, 1, 1)))),
        crossed(scene.scrutiny(main=MESSAGE), Phase.COMMUNICATING),
        crossed(scene.scrutiny(at_work="thread saver waits for storage")),
        crossed(scene.scrutiny(), Phase.DATA),
        crossed(scene.scrutiny(), at_s=1.2),
        crossed(scene.scrutiny(), stands=False),
        crossed(scene.scrutiny(), told_standing=False),
    ],
    ids=[
        "it was not looked at",
        "it computes",
        "it waits for its GPU",
        "it awaits a message",
        "a thread of it saves, and may enter the other group's next",
        "it fetches data",
        "it stands for a moment only",
        "it was asked once",
        "it was asked before it stood",
    ],
)
def test_a_rank_that_may_yet_enter_what_others_wait_in_proves_nothing(ranks: Ranks) -> None:
    told = note_rest(ranks)
    assert not told.traces[0].rests
    assert not any(finding.acts for finding in judged(told, ranks.local[0].look.at_s))


@pytest.mark.parametrize(
    ("at_s", "is_overdue", "acts"),
    [(119.0, True, False), (121.0, True, True), (121.0, False, False)],
)
def test_ranks_that_seem_to_wait_for_each_other_are_ended_at_the_users_limit_alone(
    at_s: float, is_overdue: bool, acts: bool
) -> None:
    """Their hosts spin for their GPUs, so nothing proves that they wait; or one of them saves."""
    mine = rank(0, Phase.COMMUNICATING, at_s=at_s)
    told = [crossing(0), crossing(1, is_overdue=is_overdue)]
    ranks = job(mine, traces=told, peers=[scene.peer(1, "forward", at_s)])
    ranks = replace(ranks, local={0: replace(mine, look=replace(mine.look, identity=PAIR))})
    limited = judged(ranks, at_s, LIMITED)
    assert [one.acts for one in limited if one.ranks == [0]] == [acts]
    assert not any(one.acts for one in judged(ranks, at_s))


PAIR = scene.identity(0, 2)


def test_a_lock_in_the_backward_pass_is_no_proof_while_somebody_is_at_work() -> None:
    """Rank 1 waits for nobody: what rank 2 stands for may come from it."""
    pair = trace(0, standing([*PAST, STEP[0]], 12), groups={"0": 2})
    traces = [pair, trace(1, groups={"1": 2}), trace(2, standing(PAST), groups={"0": 2})]
    peers = [scene.peer(0, "backward"), scene.peer(1, "forward")]
    ranks = job(rank(2), traces=traces, peers=peers)
    assert ranks.arrival is not None
    assert ranks.arrival.culprits == (2,)
    (finding,) = judged(replace(ranks, scrutinies={2: scene.scrutiny()}))
    assert (finding.kind, finding.acts) == (Kind.STALL, False)


def test_a_stopped_rank_keeps_its_finding_and_gains_the_evidence() -> None:
    stopped = scene.look(0.0, Phase.COMMUNICATING, 0.0, 2, state="T", records=PAST_STEPS)
    history = scene.history(stopped, replace(stopped, at_s=5.0, records=()))
    ranks = job(history, traces=[waiting(0), waiting(1), mute(2, size=3)], peers=[])
    (finding,) = judged(ranks)
    assert (finding.kind, finding.confidence, finding.acts) == (Kind.HANG, 0.98, True)
    assert "can't be asked" in finding.evidence[-1]


def test_a_rank_is_doubted_before_its_limit_and_late_after_it() -> None:
    moment = scene.moment(0.6)
    assert is_doubtful(scene.ranks(rank(0, at_s=0.6)), SETTINGS, moment)
    assert overdue(scene.ranks(rank(0, at_s=0.6)), SETTINGS, moment) == []
    assert not is_doubtful(scene.ranks(rank(0, at_s=0.3)), SETTINGS, scene.moment(0.3))
    assert overdue(scene.ranks(rank(0)), SETTINGS, scene.moment(5.0)) == [0]


def test_in_a_first_step_the_ranks_are_asked_long_before_it_is_called_slow() -> None:
    """A job that went on from just before the collective that hung hangs there again."""
    new = scene.look(0.0, Phase.COMMUNICATING, 0.0, 0, records=scene.steps(1))
    for at_s, is_asked in ((4.9, False), (5.1, True)):
        ranks = scene.ranks(scene.history(new, replace(new, at_s=at_s, records=())))
        assert is_doubtful(ranks, SETTINGS, scene.moment(at_s)) is is_asked
        assert overdue(ranks, SETTINGS, scene.moment(at_s)) == []
    starting = replace(new, words=scene.look(0.0, Phase.RESTORING, 0.0, 0).words)
    ranks = scene.ranks(scene.history(starting, replace(starting, at_s=200.0, records=())))
    assert not is_doubtful(ranks, SETTINGS, scene.moment(200.0))


def test_what_can_never_complete_is_a_hang_before_anybody_is_late() -> None:
    early = {"is_overdue": False}
    new = scene.look(0.0, Phase.COMMUNICATING, 0.0, 2, records=scene.steps(1))
    culprit = scene.history(new, replace(new, at_s=6.0, records=()))
    peers = [scene.peer(0, "backward"), scene.peer(1, "backward")]

    def found(third: RankTrace, **changes: object) -> list[Finding]:
        traces = [waiting(0, **early), waiting(1, **(early | changes)), third]
        return judged(job(culprit, traces=traces, peers=peers), 6.0)

    (finding,) = found(parted(2, **early))
    assert (finding.kind, finding.ranks, finding.acts) == (Kind.HANG, [2], True)
    assert found(parted(2, **early), stands=False) == []
    assert found(absent(2, **early)) == []
