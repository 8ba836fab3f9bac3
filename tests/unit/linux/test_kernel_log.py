"""The kernel's log as /dev/kmsg hands it out, and files and pipes in its place."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast_sidecar.linux.kmsg import (
    KernelRecord,
    open_log,
    parse_record,
    parse_records,
    read_chunks,
)


def test_a_record_is_taken_apart() -> None:
    record = parse_record("3,1187,64509132,-,caller=T1;NVRM: Xid (PCI:0): 79; it fell")
    assert record == KernelRecord(1187, 3, 64.509132, "NVRM: Xid (PCI:0): 79; it fell")


def test_a_daemons_record_has_the_level_without_its_facility() -> None:
    record = parse_record("11,2,13000000,c;from a daemon")
    assert record is not None
    assert record.level == 3


@pytest.mark.parametrize("line", ["nonsense", "x,1,y,-;nonsense", "6,1;short", "²,1,1,-;odd", ""])
def test_garbage_is_no_record(line: str) -> None:
    assert parse_record(line) is None


def test_records_come_one_by_one_however_they_are_read() -> None:
    chunk = b"3,1,1000000,-;NVRM: one\n SUBSYSTEM=pci\n3,2,2000000,c;NVRM: two\n\xff\xfe"
    assert [(r.sequence, r.at_s, r.text) for r in parse_records(chunk)] == [
        (1, 1.0, "NVRM: one"),
        (2, 2.0, "NVRM: two"),
    ]


def test_what_is_there_is_read_and_nothing_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "kmsg")
    descriptor = open_log(tmp_path / "kmsg")
    writer = os.open(tmp_path / "kmsg", os.O_WRONLY)
    try:
        assert list(read_chunks(descriptor)) == []
        os.write(writer, b"6,1,1,-;here\n")
        assert list(read_chunks(descriptor)) == [b"6,1,1,-;here\n"]
    finally:
        os.close(writer)
        os.close(descriptor)


def test_a_file_in_the_logs_place_has_an_end(tmp_path: Path) -> None:
    (tmp_path / "kmsg").write_bytes(b"6,1,1,-;here\n")
    descriptor = open_log(tmp_path / "kmsg")
    try:
        assert list(read_chunks(descriptor)) == [b"6,1,1,-;here\n", b""]
    finally:
        os.close(descriptor)


def test_what_was_overwritten_is_told_and_the_next_record_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the kernel says EPIPE to a reader, and only once it has logged a whole buffer since."""
    answers: Iterator[OSError | bytes] = iter(
        [OSError(errno.EPIPE, ""), b"6,9,1,-;next\n", BlockingIOError()]
    )

    def answer(descriptor: int, size: int) -> bytes:
        found = next(answers)
        if isinstance(found, OSError):
            raise found
        return found

    monkeypatch.setattr(os, "read", answer)
    assert list(read_chunks(3)) == [None, b"6,9,1,-;next\n"]


def test_a_log_that_can_t_be_read_raises_why(tmp_path: Path) -> None:
    descriptor = open_log(tmp_path)
    try:
        with pytest.raises(IsADirectoryError):
            list(read_chunks(descriptor))
    finally:
        os.close(descriptor)
