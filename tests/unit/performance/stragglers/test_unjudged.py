"""What can't be judged is told, and nobody is blamed for it."""

from __future__ import annotations

import random
from collections.abc import Iterator

from bench.stragglers.scenario import Fault, Layout, Scenario
from tests.unit.performance.stragglers.simulated import EIGHT, blamed, follow
from tests.unit.performance.stragglers.told import line, places

from holdfast_sidecar.performance.stragglers.frame import Excess, StepFrame
from holdfast_sidecar.performance.stragglers.judge import MOST_LINES, Detector
from holdfast_sidecar.performance.stragglers.placement import RankPlace
from holdfast_sidecar.records.steps import SlowCause, StepLine

ALIKE = places(*[""] * 8)


def told_of(
    detector: Detector,
    frames: Iterator[dict[int, StepLine]],
    where: dict[int, RankPlace] | None = None,
) -> list[Excess]:
    """Everybody who is ever told slow."""
    told: list[Excess] = []
    for step, lines in enumerate(frames, start=1):
        told += detector.follow(StepFrame(step - 1, step, lines), where or ALIKE, float(step))
    return told


def steps(count: int, seed: int = 1, **of_rank_3: int) -> Iterator[dict[int, StepLine]]:
    """Eight ranks alike, but for what is said of one of them."""
    draw = random.Random(seed)
    for step in range(1, count + 1):
        yield {
            rank: line(
                rank,
                step,
                **{
                    "forward": int(280_000 * draw.uniform(0.97, 1.03)),
                    **(of_rank_3 if rank == 3 else {}),
                },
            )
            for rank in range(8)
        }


def test_one_rank_alone_is_compared_with_nobody() -> None:
    detector = Detector()
    alone = ({0: line(0, step, forward=280_000 * step)} for step in range(1, 40))
    assert not told_of(detector, alone)
    assert detector.unjudged == ("only one rank tells of its steps: nobody to compare it with",)


def test_a_rank_without_peers_of_its_role_is_not_judged_and_the_others_are() -> None:
    detector = Detector()
    where = places("reader", *["trainer"] * 7)
    frames = (
        lines | {0: line(0, step, forward=2_800_000), 5: line(5, step, data=400_000)}
        for step, lines in enumerate(steps(60), start=1)
    )
    told = told_of(detector, frames, where)
    assert {excess.rank for excess in told} == {5}
    assert detector.unjudged == ("rank 0 (role reader): nobody else has this role to compare with",)


def test_a_rank_of_which_nothing_is_known_but_its_steps_is_not_judged() -> None:
    detector = Detector()
    where = {rank: place for rank, place in ALIKE.items() if rank != 3}
    assert not told_of(detector, steps(60, data=900_000), where)
    assert detector.unjudged == ("rank 3: their place is not known yet",)


def test_times_that_make_no_sense_are_no_excess() -> None:
    for nonsense in ({"data": -9_000_000}, {"total": 0}, {"data": 10**13}, {"backward": -1}):
        detector = Detector()
        assert not told_of(detector, steps(60, **nonsense))
        (why,) = detector.unjudged
        assert why.startswith("rank 3: its times make no sense")


def test_a_clock_that_jumped_once_changes_nothing() -> None:
    detector = Detector()
    frames = list(steps(90))
    frames[50][3] = line(3, 51, data=50_000_000)
    frames[51][3] = line(3, 52, data=-50_000_000)
    assert not told_of(detector, iter(frames))


def test_no_size_of_the_work_though_it_varies_is_said_so() -> None:
    silent = Scenario(1, EIGHT, lengths=0.6, tells_work=False)
    whys: list[str] = []
    told = follow(silent, 200, lambda step, detector: whys.extend(detector.unjudged))
    assert not blamed(told)
    assert any("no size of their work is told" in why for why in whys)


def test_a_rank_that_tells_no_size_while_others_work_unevenly_is_not_judged() -> None:
    detector = Detector()
    draw = random.Random(5)

    def frames() -> Iterator[dict[int, StepLine]]:
        for step in range(1, 120):
            lines = {}
            for rank in range(8):
                tokens = draw.choice((4096, 8192, 16384))
                more = 3 if rank == 3 else 1
                told = {"tokens": 0 if rank == 3 else tokens, "forward": 30 * tokens * more}
                lines[rank] = line(rank, step, backward=60 * tokens * more, **told)
            yield lines

    assert not told_of(detector, frames())
    assert detector.unjudged == ("rank 3: work varies, and no size of theirs is told",)


def test_until_it_is_known_what_work_costs_nobody_is_judged() -> None:
    whys: dict[int, tuple[str, ...]] = {}
    varied = Scenario(2, Layout(4), lengths=0.4)
    follow(varied, 20, lambda step, detector: whys.update({step: detector.unjudged}))
    assert "what it costs is not known yet" in whys[2][0]
    assert whys[20] == ()


def test_ranks_that_come_and_go_are_not_blamed_for_their_first_steps() -> None:
    for seed in range(5):
        restless = Scenario(
            seed,
            EIGHT,
            restarts=((1, 60, 64), (2, 80, 120), (3, 90, 91), (1, 130, 150)),
        )
        assert not blamed(follow(restless, 200))


def test_a_rank_that_is_back_within_two_steps_may_have_started_anew() -> None:
    for seed in range(8):
        away = ((0, 60, 62), (1, 80, 83))
        assert not blamed(follow(Scenario(seed, EIGHT, sigma=0.045, restarts=away), 110))


def test_who_comes_back_slow_is_found_again() -> None:
    away = Scenario(
        3,
        EIGHT,
        restarts=((1, 60, 100),),
        faults=(Fault(SlowCause.COMPUTE, (1,), 0.3, since=41),),
    )
    told = follow(away, 130)
    assert blamed(told) == {1}
    assert told[55]
    assert not told[95]
    assert told[125]


def test_backward_passes_with_the_others_waits_in_them_are_compared_with_nobodys() -> None:
    detector = Detector()
    frames = (
        {
            rank: each._replace(waits_seen=rank % 2, backward=500_000 if rank % 2 else 900_000)
            for rank, each in lines.items()
        }
        for lines in steps(60)
    )
    assert not told_of(detector, frames)


def test_what_can_not_be_judged_is_told_in_few_lines() -> None:
    detector = Detector()
    roles = places(*[f"part {number}" for number in range(30)])
    lines = {rank: line(rank, 1) for rank in range(30)}
    detector.follow(StepFrame(0, 1, lines), roles, 1.0)
    assert len(detector.unjudged) == MOST_LINES
    assert detector.unjudged[-1] == "23 more of the same kind"


def test_of_ranks_whose_stages_are_not_known_nobody_is_blamed() -> None:
    detector = Detector()
    where = {
        rank: RankPlace(rank, "a", f"stage of rank {rank}", is_unknown_stage=True)
        for rank in range(8)
    }
    assert not told_of(detector, steps(40, forward=500_000), where)
    (why,) = detector.unjudged
    assert why.startswith("ranks 0, 1, 2, 3, 4, 5 and 2 more: they send to one another")
    assert "HOLDFAST_ROLE" in why
