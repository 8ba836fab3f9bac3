from __future__ import annotations

import os
from pathlib import Path

from holdfast_sidecar.incidents.first_error import read_tail


def test_the_tail_begins_with_a_whole_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("password=s3cr3t and more\nsecond\nthird\n")
    assert read_tail(log, 20) == "second\nthird\n"
    assert read_tail(log, 12) == "third\n"
    assert read_tail(log, 1000) == log.read_text()


def test_what_was_there_before_is_left_out(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("of the attempt before\n")
    begins = log.stat().st_size
    with log.open("a") as file:
        file.write("of this one\n")
    assert read_tail(log, 1000, begins) == "of this one\n"
    log.write_text("rotated\n")
    assert read_tail(log, 1000, begins) == "rotated\n"


def test_what_cannot_be_read_is_empty(tmp_path: Path) -> None:
    assert read_tail(tmp_path / "gone", 10) == ""
    assert read_tail(tmp_path, 10) == ""
    os.mkfifo(tmp_path / "pipe")
    assert read_tail(tmp_path / "pipe", 10) == ""
