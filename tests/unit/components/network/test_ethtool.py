"""A driver's own counters: which are kept, and that real interfaces answer or refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_sidecar.components.network.ethernet import (
    counter_of,
    of_interest,
    parse_names,
    read_all_counters,
    read_driver_counters,
)

HERE = sorted(entry.name for entry in Path("/sys/class/net").iterdir())


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("rx_prio3_pause", ("pause", "receive", "3")),  # mlx5
        ("tx_pause_ctrl_phy", ("pause", "transmit", "all")),
        ("rx_discards_phy", ("discards", "receive", "")),
        ("tx_pfc_ena_frames_pri5", ("pause", "transmit", "5")),  # bnxt_en
        ("rx_priority_3_xoff.nic", ("pause", "receive", "3")),  # ice
        ("rx_prio3_pause_duration", None),
        ("rx_prio3_bytes", None),
        ("rx_packets", None),
    ],
)
def test_pause_frames_and_discards_are_known_by_each_drivers_name(
    name: str, known: tuple[str, str, str] | None
) -> None:
    assert counter_of(name) == known


def test_a_counter_that_a_driver_tells_twice_is_told_once() -> None:
    told = {"rx_pause_ctrl_phy": 4, "rx_global_pause": 9, "rx_packets": 100}
    assert of_interest(told) == {("pause", "receive", "all"): 9}


def test_names_are_padded_with_zeros_and_a_cut_off_one_is_left_out() -> None:
    assert parse_names(b"rx_kicks".ljust(32, b"\0") + b"tx" + bytes(30) + b"cut") == [
        "rx_kicks",
        "tx",
    ]


def test_an_interface_that_is_not_there_refuses() -> None:
    with pytest.raises(OSError, match="No such device"):
        read_driver_counters("nonsense0")


@pytest.mark.parametrize("interface", HERE)
def test_real_drivers_answer_with_names_and_numbers(interface: str) -> None:
    try:
        counters = read_all_counters(interface)
    except OSError:
        pytest.skip(f"the driver of {interface} has no counters")
    assert all(name.isprintable() and name for name in counters)
    assert all(0 <= value < 2**60 for value in counters.values())
