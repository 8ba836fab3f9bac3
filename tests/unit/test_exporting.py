"""What a sidecar does that can't serve what it should."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast_sidecar.config.paths import Paths
from holdfast_sidecar.config.settings import BadInput, Settings, SidecarSettings
from holdfast_sidecar.wiring import open_exporter

LOOPBACK = SidecarSettings(listen="127.0.0.1:0")


def refused(
    folder: Path, sidecar: SidecarSettings, words: str, log: pytest.LogCaptureFixture
) -> None:
    """By itself it does not start; beside a launcher it watches without."""
    where, settings = Paths(folder / "shm", folder / "state"), Settings(sidecar=sidecar)
    with pytest.raises(BadInput, match=words):
        open_exporter("job", "a", settings, where)
    served = open_exporter("job", "a", settings, where, is_needed=False)
    assert served.address == ""
    assert words in served.unserved
    assert served.exporter.server is None
    served.exporter.close()
    (record,) = log.records
    assert words in record.message


def test_a_port_that_is_taken_leaves_no_job_unwatched(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        refused(tmp_path, replace(LOOPBACK, listen=listen), "sidecar.listen=127.0.0.1:0", caplog)


def test_neither_does_a_certificate_that_is_gone_or_a_token(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gone = str(tmp_path / "gone")
    refused(tmp_path, replace(LOOPBACK, token_file=gone), "can't read", caplog)
    caplog.clear()
    with_tls = replace(LOOPBACK, tls_cert_file=gone, tls_key_file=gone)
    refused(tmp_path, with_tls, "can't read", caplog)


def test_settings_of_before_by_which_others_would_read_along_stop_no_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A job goes on over an upgrade, and its sidecars are started again under the old policy."""
    exposed = replace(LOOPBACK, listen="0.0.0.0:0")
    refused(tmp_path, exposed, "lets other machines read along: set sidecar.token_file", caplog)
