"""The table against the folklore that the reference (b.1) corrects, written by hand."""

from __future__ import annotations

import pytest

from holdfast_sidecar.components.xid.catalog import (
    FATAL_SXIDS,
    XIDS,
    FollowUp,
    entry_of,
    is_fatal_by_table,
)
from holdfast_sidecar.records.findings import Remedy


@pytest.mark.parametrize(
    ("numbers", "remedy"),
    [
        ((63, 92), Remedy.NONE),
        ((37, 38, 43, 44, 45, 66, 67), Remedy.NONE),
        ((61, 93, 121, 141, 157, 159, 160, 161, 163, 164, 165, 171), Remedy.NONE),
        ((8, 11, 13, 25, 31, 32, 39, 40, 41, 60, 68, 69, 80, 94, 137), Remedy.RESTART_APP),
        ((70, 71, 72, 75, 76, 77), Remedy.RESTART_APP),
        ((46, 48, 62, 74, 95, 109, 110, 119, 120, 136, 140, 143), Remedy.RESET_GPU),
        ((155, 156, 158, 167, 169, 172), Remedy.RESET_GPU),
        ((79, 151, 168), Remedy.REBOOT_NODE),
        ((54, 64), Remedy.REPLACE),
    ],
)
def test_a_number_asks_for_what_the_reference_says(
    numbers: tuple[int, ...], remedy: Remedy
) -> None:
    assert {number: XIDS[number].remedy for number in numbers} == dict.fromkeys(numbers, remedy)


def test_the_lines_of_nvlink_5_decide_by_themselves() -> None:
    assert all(FollowUp.DECODE in XIDS[number].follow_ups for number in range(144, 151))


def test_the_driver_s_own_verdict_is_read_from_154() -> None:
    assert XIDS[154].follow_ups == (FollowUp.PARSE,)


@pytest.mark.parametrize("number", [0, 1, 14, 170, 173, 999, 100000])
def test_an_unknown_number_asks_for_nothing(number: int) -> None:
    assert entry_of(number).remedy is Remedy.NONE


def test_every_entry_says_what_it_means() -> None:
    assert all(entry.number == number for number, entry in XIDS.items())
    assert all(entry.meaning and entry.mnemonic for entry in XIDS.values())


def test_fatal_errors_of_a_switch_are_those_of_the_reference() -> None:
    listed = (11001, 11004, 12001, 12022, 12024, 12028, 14017, 19047, 19084, 20034, 22003, 24007)
    assert set(FATAL_SXIDS) == set(listed)
    assert not is_fatal_by_table(22013)
