"""What `holdfast doctor` says of a sidecar's listening."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from holdfast_sidecar.examination.serving import check_serving
from holdfast_sidecar.settings import SidecarSettings

BEYOND = SidecarSettings(listen="0.0.0.0:9750")


def test_the_default_is_for_this_machine_alone_which_is_worth_knowing() -> None:
    check = check_serving(SidecarSettings())
    assert check.verdict == "note"
    assert "a job of several nodes" in check.line


def test_what_a_sidecar_would_refuse_fails(tmp_path: Path) -> None:
    assert "lets other machines read along" in check_serving(BEYOND).line
    gone = replace(SidecarSettings(), token_file=str(tmp_path / "gone"))
    assert "can't read" in check_serving(gone).line
    assert check_serving(BEYOND).verdict == check_serving(gone).verdict == "fail"


def test_who_may_read_is_said(tmp_path: Path) -> None:
    aloud = replace(BEYOND, listen_insecure=True)
    assert check_serving(aloud).line == "0.0.0.0:9750: in the clear, to everybody who reaches it"
    (tmp_path / "token").write_text("0123456789abcdef")
    known = check_serving(replace(aloud, token_file=str(tmp_path / "token")))
    assert known.line == "0.0.0.0:9750: in the clear, to whoever has the token"
    assert known.verdict == "ok"
