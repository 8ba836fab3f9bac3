"""What a page from elsewhere, open in a browser on this machine, can't read by borrowing our
address for its own name."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.export.asking import ask, serving
from tests.unit.export.picture import picture

from holdfast_sidecar.config.settings import SidecarSettings
from holdfast_sidecar.export.access import is_named, open_protection, own_names

NAMES = own_names("job.example:9750")

LOOPBACK = SidecarSettings(listen="127.0.0.1:0")


@pytest.mark.parametrize(
    "host",
    [
        "",
        "127.0.0.1:9750",
        "[::1]:9750",
        "10.0.0.7",
        "localhost:9750",
        "LOCALHOST.",
        "llm.localhost:80",
        f"{socket.gethostname()}:9750",
        "Job.Example:9750",
    ],
)
def test_addresses_and_names_of_our_own_are_asked_for(host: str) -> None:
    assert is_named(host, NAMES)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:9750", "127.0.0.1.evil.example", "notlocalhost", "[", "a:b:c"],
)
def test_a_name_that_is_not_ours_is_somebody_elses(host: str) -> None:
    assert not is_named(host, NAMES)


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/nowhere"])
def test_a_page_that_borrows_our_address_for_its_name_reads_nothing(path: str) -> None:
    with serving(open_protection(LOOPBACK)) as (exporter, port):
        exporter.tell(picture())
        refused = ask(port, path, Host=f"evil.example:{port}")
        assert (refused.status, b"holdfast_rank" in refused.body) == (421, False)
        assert b"evil" not in refused.body
        assert ask(port, path, Host=f"localhost:{port}").status != 421
        assert ask(port, path).status != 421


def test_who_asks_for_a_token_or_listens_for_others_may_be_called_anything(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    assert open_protection(LOOPBACK).names is not None
    assert open_protection(replace(LOOPBACK, token_file=str(token))).names is None
    beyond = SidecarSettings(listen="0.0.0.0:9750", listen_insecure=True)
    assert open_protection(beyond).names is None
