"""What torch's error file says of an exception."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from holdfast.rank import exit_report  # noqa: E402


def fail() -> ValueError:
    try:
        raise ValueError("planted")
    except ValueError as error:
        return error


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the frame of who raised last can't be left")
def test_the_traceback_in_torchs_error_file_shows_no_frame_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    exit_report._write_error_file(fail())
    told = json.loads((tmp_path / "error.json").read_text())["message"]
    assert "in fail" in told["extraInfo"]["py_callstack"]
    assert "last_words" not in told["extraInfo"]["py_callstack"].replace("test_last_words", "")


def test_the_exception_is_passed_on_with_the_frames_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    error = fail()
    frames = error.__traceback__
    exit_report._write_error_file(error)
    assert error.__traceback__ is frames
