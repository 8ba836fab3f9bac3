from __future__ import annotations

import pytest

from holdfast.contract.page import FIRST, UNCLEAR
from holdfast_sidecar.performance.stragglers.placement import Messages, find_stages


def told(**ranks: tuple[int, set[int]]) -> dict[int, Messages]:
    return {int(name[1:]): Messages(after, frozenset(w)) for name, (after, w) in ranks.items()}


def test_each_stage_follows_the_one_that_it_hears_from_first() -> None:
    chain = told(r5=(FIRST, {3}), r3=(5, {5, 8}), r8=(3, {3}))
    assert find_stages(chain) == {5: (0, 3), 3: (1, 3), 8: (2, 3)}


@pytest.mark.parametrize(
    "others",
    [
        told(r0=(FIRST, {1}), r1=(0, {0, 2}), r2=(FIRST, {1, 3}), r3=(2, {2})),  # borders
        told(r0=(FIRST, {1, 2}), r1=(0, {0, 2}), r2=(1, {1, 0})),  # a ring
        told(r0=(FIRST, {1, 2}), r1=(0, {0}), r2=(0, {0})),  # a server
        told(r0=(1, {1}), r1=(0, {0})),
        told(r0=(FIRST, {1}), r1=(UNCLEAR, {0})),
        told(r0=(FIRST, {1})),  # the other tells nothing yet
        told(r0=(FIRST, {1}), r1=(0, {0}), r2=(FIRST, {3}), r3=(2, {2, 4}), r4=(3, {3})),
        told(r0=(FIRST, set())),
        {},
    ],
)
def test_where_not_all_fit_into_chains_of_equal_length_there_are_no_stages(
    others: dict[int, Messages],
) -> None:
    assert find_stages(others) == {}
