"""What of a rank's steps counts as its own work."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.ranks.scene import record

from holdfast.contract.page import RecordFlag
from holdfast_sidecar.ranks.observation import own_s


def test_a_step_of_which_only_the_whole_is_known_says_nothing_of_own_work() -> None:
    measured = record(1, forward=20)
    whole = replace(record(2), total_us=500_000, other_us=500_000, flags=RecordFlag.WHOLE_ONLY)
    alone = own_s((measured,), 4)
    assert alone > 0
    assert own_s((measured, *[whole] * 8), 4) == alone
    assert own_s((whole,), 4) == 0


def test_a_backward_pass_is_own_work_where_its_waiting_is_known() -> None:
    mixed = record(1, forward=20, backward=30)
    told = replace(mixed, flags=mixed.flags | RecordFlag.WAITS_SEEN)
    assert (own_s((mixed,), 4), own_s((told,), 4)) == (0.02, 0.05)
