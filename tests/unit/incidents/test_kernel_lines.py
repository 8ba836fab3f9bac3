from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from holdfast_sidecar.incidents.bundle import LINES_KEPT, read_kernel_lines


@pytest.mark.parametrize(
    ("record", "lines"),
    [
        (
            "6,1,12500000,-;usb 1-1: new device\n SUBSYSTEM=usb\n",
            ["[12.500000] info: usb 1-1: new device"],
        ),
        (
            "3,2,13000000,-,caller=T1;NVRM: Xid (PCI:0): 79\n",
            ["[13.000000] error: NVRM: Xid (PCI:0): 79"],
        ),
        ("11,2,13000000,c;from a daemon\n", ["[13.000000] error: from a daemon"]),
        ("6,1,9999999,-;too old\n", []),
        ("nonsense\n", []),
    ],
)
def test_a_record_becomes_a_line_with_its_time_and_weight(
    record: str, lines: list[str], tmp_path: Path
) -> None:
    (tmp_path / "kmsg").write_text(record)
    assert read_kernel_lines(10.0, tmp_path / "kmsg") == lines


def test_where_the_log_may_not_be_read_the_reason_is_raised(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_kernel_lines(0.0, tmp_path / "kmsg")


def test_this_machines_log_is_read_line_by_line_where_it_may_be_read() -> None:
    lines: list[str] = []
    with contextlib.suppress(PermissionError, FileNotFoundError):
        lines = read_kernel_lines(since_s=0.0)
    assert len(lines) <= LINES_KEPT
    assert all(line.startswith("[") and "] " in line for line in lines)
