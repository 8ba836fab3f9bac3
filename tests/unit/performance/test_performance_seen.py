"""How the steps go, out of what nodes report."""

from __future__ import annotations

import dataclasses

from tests.unit.records.slow_job import PLAN, QUIET, SLOW, STANDING, line, node, nodes

from holdfast_sidecar.performance.summary import (
    heard,
    in_brief,
    lines_of,
    losses_of,
    newest_lines,
    see,
    shortened,
    summed,
)
from holdfast_sidecar.records.codec import decode, encode
from holdfast_sidecar.records.reports import Losses, Performance, RankSteps
from holdfast_sidecar.records.steps import spell


def test_the_leader_is_believed_and_before_it_speaks_who_spoke_last() -> None:
    old = dataclasses.replace(QUIET, at_unix_s=9.0)
    reports = [node("a", 0, old), node("b", 4, STANDING), node("c", 8)]
    assert heard(reports, "a/i") is old
    assert heard(reports, "c/i") is STANDING
    assert heard([node("c", 8)], "c/i") is None


def test_a_later_attempt_outweighs_a_clock_that_is_ahead() -> None:
    later = dataclasses.replace(QUIET, attempt=1, at_unix_s=1.0)
    assert heard([node("a", 0, STANDING), node("b", 4, later)], "") is later


def test_the_newest_block_that_most_ranks_tell_of_is_shown() -> None:
    whole = [spell(line(rank, step)) for rank in range(8) for step in (2032, 2048)]
    begun = [spell(line(3, 2064)), "torn 3 4", ""]
    found = newest_lines([*whole, *begun])
    assert len(found) == 8
    assert found[3].split()[1] == "2048"
    assert newest_lines([spell(line(0, steps=0))]) == {}
    assert newest_lines([]) == {}


def test_only_ranks_of_the_attempt_under_way_are_seen() -> None:
    spare = dataclasses.replace(node("c", 0), attempt=-1)
    seen = see(PLAN, [*nodes(memory_total=80), spare], "a/i")
    assert [one.rank for one in seen.ranks] == list(range(8))
    assert {one.node for one in seen.ranks} == {"a", "b"}
    assert seen.ranks[0].memory_total == 80
    assert (seen.standing, seen.world_size) == (STANDING, 8)
    assert lines_of(seen.ranks)[5].own_us == 142000


def test_of_thousands_of_ranks_the_slow_ones_and_some_to_compare_with_are_kept() -> None:
    ranks = [
        RankSteps(rank, f"n{rank // 8}", spell(line(rank, forward=80000 + rank)))
        for rank in range(4096)
    ]
    short = shortened(Performance(1.0, 4096, STANDING, ranks))
    shown = {one.rank for one in short.ranks}
    assert len(shown) == 32
    assert {5, 4095, 0} <= shown  # called slow, the slowest, the fastest
    assert short.left_out == 4096 - 32
    again = shortened(short)
    assert again == short


def test_what_is_written_down_of_a_large_job_is_read_from_a_few_of_its_nodes() -> None:
    """Those of the slow ranks among them, wherever they are."""
    slow = dataclasses.replace(STANDING, slow=[dataclasses.replace(SLOW, ranks=[3001])])
    many = [node(f"n{first:04}", first) for first in range(0, 4096, 4)]
    many[0] = dataclasses.replace(many[0], slow=slow)
    short = in_brief(PLAN, many, "n0000/i")
    assert len(short.ranks) == 32
    assert 3001 in {one.rank for one in short.ranks}
    assert short.left_out == 4096 - 32
    assert short.standing == slow
    assert in_brief(PLAN, nodes(), "a/i") == see(PLAN, nodes(), "a/i")


def test_what_runs_lost_is_added_up_and_outlives_a_record() -> None:
    first = losses_of(Performance(1.0, 8, STANDING))
    both = summed(first, Losses(400.0, {"link": 9.0, "collector": 4.0}, {}))
    assert both.watched_s == 4000.0
    assert both.by_cause == {"cpu_quota": 360.0, "collector": 40.0, "link": 9.0}
    assert losses_of(None) == Losses()
    kept = see(PLAN, nodes(), "a/i")
    assert decode(Performance, encode(kept)) == kept
