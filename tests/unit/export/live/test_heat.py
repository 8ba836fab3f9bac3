from __future__ import annotations

import pytest

from holdfast_sidecar.export.live.heatmap import FIRST_S, LAST_S, HeatMemory, RankNow
from holdfast_sidecar.export.live.view import COLUMNS, RANKS, Heat

NAMES = ["starting", "forward"]


def told(*own_s: float, phase: int = 1, role: str = "") -> list[RankNow]:
    return [RankNow(rank, own, phase, role) for rank, own in enumerate(own_s)]


def fed(*own_s: float) -> Heat:
    memory = HeatMemory()
    memory.follow(100.0, told(*own_s), len(own_s), 7)
    return memory.heat(NAMES)


def test_a_cell_is_own_time_against_the_median_of_all() -> None:
    heat = fed(0.1, 0.1, 0.13, 0.1)
    assert heat.columns == [101.0]
    assert heat.steps == [7]
    assert [heat.rows[rank][0] for rank in range(4)] == pytest.approx([1, 1, 1.3, 1], rel=0.011)


def test_ranks_are_compared_with_those_of_their_role_alone() -> None:
    memory = HeatMemory()
    readers = [RankNow(4, 0.02, 1, "reader"), RankNow(5, 0.03, 1, "reader")]
    memory.follow(100.0, [*told(0.1, 0.1, 0.1, 0.1), *readers], 6, None)
    heat = memory.heat(NAMES)
    assert heat.rows[0][0] == pytest.approx(1, rel=0.011)
    assert heat.rows[4][0] == pytest.approx(0.8, rel=0.011)
    assert heat.rows[5][0] == pytest.approx(1.2, rel=0.011)


def test_a_column_is_the_mean_of_what_was_told_in_it() -> None:
    memory = HeatMemory()
    for at, slow in ((100.0, 0.1), (100.3, 0.2), (100.6, 0.3)):
        memory.follow(at, told(0.1, slow, 0.1), 3, int(at))
    heat = memory.heat(NAMES)
    assert heat.columns == [101.0]
    assert heat.rows[1][0] == pytest.approx(2, rel=0.011)


def test_a_rank_whose_own_work_is_not_known_tells_its_phase_alone() -> None:
    heat = fed(0.1, 0.0, 0.1)
    assert heat.rows[1] == [None]
    assert heat.phases[1] == [1]


def test_a_rank_that_is_gone_tells_nothing() -> None:
    memory = HeatMemory()
    memory.follow(100.0, [RankNow(0, 0.1, 1), RankNow(1, 0.0, -1)], 2, None)
    assert 1 not in memory.heat(NAMES).rows


def test_nobody_is_told_of_who_never_told_anything() -> None:
    memory = HeatMemory()
    memory.follow(100.0, [RankNow(2, 0.1, 1)], 8, None)
    assert list(memory.heat(NAMES).rows) == [2]


def test_time_in_which_nobody_was_heard_is_in_the_map_and_empty() -> None:
    memory = HeatMemory()
    memory.follow(100.0, told(0.1, 0.1), 2, 1)
    memory.follow(104.5, told(0.1, 0.1), 2, 2)
    heat = memory.heat(NAMES)
    assert heat.columns == [101.0, 102.0, 103.0, 104.0, 105.0]
    assert heat.rows[0][1:4] == [None] * 3
    assert heat.steps == [1, None, None, None, 2]


def test_the_older_the_job_the_wider_the_columns_and_never_more_of_them() -> None:
    memory = HeatMemory()
    widths = set()
    for second in range(4 * 3600):
        memory.follow(1000.0 + second, told(0.1, 0.2), 2, second)
        widths.add(memory.width_s)
        assert len(memory.columns) <= COLUMNS
    assert widths == {FIRST_S * 2**power for power in range(6)}
    assert max(widths) == LAST_S
    heat = memory.heat(NAMES)
    assert len(heat.columns) in (COLUMNS, COLUMNS - 1)
    steps = {later - sooner for sooner, later in zip(heat.columns, heat.columns[1:], strict=False)}
    assert steps == {LAST_S}


def test_columns_follow_on_one_another_while_they_grow_wider() -> None:
    memory = HeatMemory()
    for second in range(1003, 1003 + 700):
        memory.follow(second + 0.5, told(0.1, 0.2), 2, second)
        columns = memory.heat(NAMES).columns
        assert columns == sorted(set(columns))
        assert columns[-1] > second


def test_what_becomes_one_column_is_the_mean_of_both() -> None:
    memory = HeatMemory()
    for second in range(COLUMNS + 1):
        memory.follow(1000.0 + second, told(0.1, 0.1, 0.11 if second % 2 else 0.13), 3, second)
    heat = memory.heat(NAMES)
    assert memory.width_s == 2 * FIRST_S
    assert heat.rows[2][10] == pytest.approx(1.2, rel=0.011)


def test_a_thousand_ranks_for_hours_take_a_quarter_of_a_megabyte() -> None:
    memory = HeatMemory()
    ranks = told(*[0.1] * RANKS)
    for turn in range(COLUMNS + 40):
        memory.follow(1000.0 + turn * LAST_S, ranks, RANKS, turn)
    assert 230_000 < memory.size_bytes <= 2 * COLUMNS * RANKS


def test_of_more_ranks_neighbours_share_a_row_and_the_slowest_counts() -> None:
    memory = HeatMemory()
    own = [0.1] * 4096
    own[2001] = 0.2
    memory.follow(100.0, told(*own), 4096, 1)
    heat = memory.heat(NAMES)
    assert heat.ranks_per_row == 4
    assert len(heat.rows) == RANKS
    assert heat.rows[2000][0] == pytest.approx(2, rel=0.011)
    assert heat.rows[2004][0] == pytest.approx(1, rel=0.011)


def test_a_job_that_grew_had_fewer_rows_before() -> None:
    memory = HeatMemory()
    memory.follow(100.0, told(0.1, 0.1), 2, 1)
    memory.follow(101.0, told(0.1, 0.1, 0.1, 0.1), 4, 2)
    heat = memory.heat(NAMES)
    assert heat.rows[3] == [None, heat.rows[0][1]]


@pytest.mark.parametrize("jump_s", [-3600.0, 3 * 3600.0])
def test_a_clock_that_was_set_begins_a_new_map(jump_s: float) -> None:
    memory = HeatMemory()
    for second in range(20):
        memory.follow(10_000.0 + second, told(0.1, 0.1), 2, second)
    memory.follow(10_020.0 + jump_s, told(0.1, 0.1), 2, 20)
    assert memory.heat(NAMES).columns == [10_021.0 + jump_s]


def test_a_copy_stays_as_it_was() -> None:
    memory = HeatMemory()
    memory.follow(100.0, told(0.1, 0.1), 2, 1)
    copied = memory.copied()
    before = copied.heat(NAMES)
    memory.follow(100.5, told(0.3, 0.1), 2, 2)
    memory.follow(101.5, told(0.3, 0.1), 2, 3)
    assert copied.heat(NAMES) == before
