"""What `holdfast doctor` says of a sidecar's listening."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

from holdfast_sidecar.cli.doctor.job import check_serving
from holdfast_sidecar.config.settings import SidecarSettings
from holdfast_sidecar.startup import SidecarRecord, write_record

BEYOND = SidecarSettings(listen="0.0.0.0:0")


def test_the_default_is_for_this_machine_alone_which_is_worth_knowing(
    tmp_path: Path,
) -> None:
    check = check_serving(SidecarSettings(), tmp_path)
    assert check.verdict == "note"
    assert "a job of several nodes" in check.line


def test_what_a_sidecar_would_refuse_fails(tmp_path: Path) -> None:
    assert "lets other machines read along" in check_serving(BEYOND, tmp_path).line
    gone = replace(SidecarSettings(), token_file=str(tmp_path / "gone"))
    assert "can't read" in check_serving(gone, tmp_path).line
    assert (
        check_serving(BEYOND, tmp_path).verdict == check_serving(gone, tmp_path).verdict == "fail"
    )


def test_a_port_that_somebody_has_is_told_with_who_it_is(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        listen = SidecarSettings(listen=f"127.0.0.1:{port}")
        check = check_serving(listen, tmp_path)
        assert check.verdict == "fail"
        assert f"port {port} is taken: a sidecar would serve nothing" in check.line
        record = SidecarRecord("llm", "a", 0, f"127.0.0.1:{port}")
        (tmp_path / "llm/a").mkdir(parents=True)
        write_record(tmp_path / "llm/a/sidecar.json", record)
        check = check_serving(listen, tmp_path)
    assert check.verdict == "note"
    assert f"port {port} is the sidecar's of job llm" in check.line
    assert "another job on this node needs another port" in check.line


def test_an_address_of_another_machine_fails(tmp_path: Path) -> None:
    elsewhere = replace(BEYOND, listen="192.0.2.1:9750", listen_insecure=True)
    check = check_serving(elsewhere, tmp_path)
    assert check.verdict == "fail"
    assert "can't listen on 192.0.2.1:9750" in check.line


def test_who_may_read_is_said(tmp_path: Path) -> None:
    aloud = replace(BEYOND, listen_insecure=True)
    assert (
        check_serving(aloud, tmp_path).line
        == "0.0.0.0:0: in the clear, to everybody who reaches it"
    )
    (tmp_path / "token").write_text("0123456789abcdef")
    known = check_serving(replace(aloud, token_file=str(tmp_path / "token")), tmp_path)
    assert known.line == "0.0.0.0:0: in the clear, to whoever has the token"
    assert known.verdict == "ok"
