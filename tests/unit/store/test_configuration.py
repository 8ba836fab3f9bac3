from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_sidecar.store.embedded import configuration, parse_version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64", (7, 0)),
        ("Valkey server v=9.1.2 sha=00000000:0 malloc=libc bits=64 build=1", (9, 1)),
        ("Redis server v=10.0.0", (10, 0)),
        ("usage: something else", None),
    ],
)
def test_a_servers_version_is_read_from_its_greeting(
    text: str, version: tuple[int, int] | None
) -> None:
    assert parse_version(text) == version


def test_nothing_is_kept_on_disk_and_nothing_evicted() -> None:
    lines = configuration(Path("/home"), 0, "p").splitlines()
    assert {'save ""', "appendonly no", "maxmemory-policy noeviction"} <= set(lines)


def test_a_socket_or_a_port_but_not_both() -> None:
    assert "unixsocket" in configuration(Path("/home"), 0, "p")
    assert "port 0\n" in configuration(Path("/home"), 0, "p")
    assert "unixsocket" not in configuration(Path("/home"), 7000, "p")
    assert "port 7000\n" in configuration(Path("/home"), 7000, "p")
