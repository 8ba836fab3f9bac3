"""What is told of a rank's process groups."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.export.picture import with_words
from tests.unit.ranks.scene import history, look, record

from holdfast.contract.page import Word
from holdfast_sidecar.export.metrics import draw_groups, name_groups
from holdfast_sidecar.ranks.observation import RankHistory, follow
from holdfast_sidecar.records.metric import Labels

TWO = ("default_pg/aabb/8", "mesh_dp/ccdd/4", "", "")


def told(of: RankHistory, groups: tuple[str, ...] = TWO) -> dict[tuple[str, str], float]:
    """(metric, group) -> value."""
    samples = draw_groups(of, groups, Labels({}))
    names = ((one.name.removeprefix("holdfast_rank_group_"), one) for one in samples)
    return {(name, one.labels["group"]): one.value for name, one in names}


def test_calls_bytes_and_waits_are_told_by_what_a_group_is_for() -> None:
    waits = ((4000, 1000, 0, 0), (2000, 0, 0, 0))
    records = tuple(replace(record(n), waits_us=us) for n, us in enumerate(waits, 1))
    words = {Word.COLLECTIVES_1: 6, Word.SENT_BYTES_1: 900, Word.COLLECTIVES_2: 2}
    seen = follow(None, with_words(look(1.0, records=records), words))
    assert told(seen) == {
        ("calls_total", "default_pg"): 6,
        ("bytes_total", "default_pg"): 900,
        ("wait_seconds_total", "default_pg"): 0.006,
        ("calls_total", "mesh_dp"): 2,
        ("bytes_total", "mesh_dp"): 0,
        ("wait_seconds_total", "mesh_dp"): 0.001,
    }
    again = follow(seen, with_words(look(2.0, records=records[:1]), words))
    assert told(again)["wait_seconds_total", "default_pg"] == pytest.approx(0.01)


def test_a_group_counts_from_zero_and_of_a_rank_that_is_in_none_nothing_is_told() -> None:
    used = history(with_words(look(1.0), {Word.COLLECTIVES_1: 6}))
    assert told(used)["calls_total", "mesh_dp"] == 0
    assert told(used, ()) == {}


def test_nameless_groups_go_by_their_members_and_alike_ones_by_their_number() -> None:
    nameless = ("undefined/0123456789ab/4", "/0123456789ab/4", "tp/aa/2", "tp/bb/2")
    assert name_groups(nameless) == ["group 01234567", "group 01234567 #2", "tp", "tp #2"]
    assert name_groups(()) == ["", "", "", ""]
