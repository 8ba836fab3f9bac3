from __future__ import annotations

import gzip
import random

import pytest
from tests.unit.ranks.large_job import Job, picture

from holdfast_sidecar.export.live.build import PHASE_NAMES, context_of, gather
from holdfast_sidecar.export.live.heatmap import HeatMemory, RankNow
from holdfast_sidecar.export.live.packing import pack, unpack
from holdfast_sidecar.export.live.view import COLUMNS, LiveView

MOST_BYTES = 200_000
"""Of a thousand ranks, compressed: a page that is looked at over a slow link every two seconds."""


def full(ranks: int, noise: float = 0.02) -> HeatMemory:
    """Every cell told; noise as in steps of tens of milliseconds."""
    memory, chance = HeatMemory(), random.Random(7)
    for second in range(COLUMNS - 1):
        told = [
            RankNow(rank, 0.08 * chance.gauss(1, noise), chance.randrange(3, 8))
            for rank in range(ranks)
        ]
        memory.follow(1_000_000.0 + second, told, ranks, second)
    return memory


def view_of(ranks: int, noise: float = 0.02) -> LiveView:
    scene = context_of(picture(Job(ranks)), "job", None)
    return gather(scene, full(ranks, noise))


@pytest.mark.parametrize("ranks", [4, 64])
def test_a_view_comes_back_from_its_bytes_as_it_was(ranks: int) -> None:
    view = view_of(ranks)
    back = unpack(pack(view))
    assert back is not None
    assert back.heat == view.heat
    assert back.incidents == view.incidents
    assert [rank.node for rank in back.ranks] == [rank.node for rank in view.ranks]
    assert pack(back) == pack(view)


@pytest.mark.parametrize("noise", [0.02, 0.3])
def test_a_thousand_ranks_fit_into_200_kB_compressed(noise: float) -> None:
    view = view_of(1024, noise)
    assert len(view.ranks) == 1024
    assert len(view.heat.rows) == 1024
    assert len(gzip.compress(pack(view), 6)) < MOST_BYTES


def test_a_small_job_takes_little() -> None:
    assert len(gzip.compress(pack(view_of(4)), 6)) < 10_000


@pytest.mark.parametrize("told", [b"", b"[]", b"{", b"[" * 100_000, b"\xff", b'"x"'])
def test_bytes_that_are_no_view_are_none(told: bytes) -> None:
    assert unpack(told) is None


@pytest.mark.parametrize("heat", [b"3", b'{"rows": 3}', b'{"rows": {"x": "##"}, "columns": 1}'])
def test_a_map_that_is_none_leaves_the_rest_readable(heat: bytes) -> None:
    view = unpack(b'{"version": 1, "run": "llm", "heat": ' + heat + b"}")
    assert view is not None
    assert view.run == "llm"
    assert view.heat.rows == {}


def test_phases_are_told_by_their_numbers() -> None:
    view = unpack(pack(view_of(4)))
    assert view is not None
    assert view.heat.phase_names == PHASE_NAMES
    assert {phase for row in view.heat.phases.values() for phase in row} == {3, 4, 5, 6, 7}
