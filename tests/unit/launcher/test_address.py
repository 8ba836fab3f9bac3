from __future__ import annotations

import socket

import pytest

from holdfast_sidecar.config.addresses import is_loopback
from holdfast_sidecar.launcher.attempt_store import advertised, own_address


def test_the_given_address_is_taken() -> None:
    assert own_address("10.1.2.3", "redis://127.0.0.1:1") == "10.1.2.3"


@pytest.mark.parametrize(
    "url", ["unix:///tmp/r.sock", "redis://127.0.0.1:6379", "redis://u@localhost"]
)
def test_a_server_on_this_machine_means_loopback(url: str) -> None:
    assert is_loopback(own_address(None, url))


def test_sentinels_are_an_address_too() -> None:
    assert own_address(None, "redis+sentinel://127.0.0.1:1,127.0.0.2:2/main") == "127.0.0.1"


def test_loopback_is_not_given_to_nodes_elsewhere() -> None:
    assert advertised("127.0.0.1", ["10.0.0.2"]) == socket.getfqdn()
    assert advertised("127.0.0.1", ["127.0.0.1"]) == "127.0.0.1"
    assert advertised("10.0.0.1", ["10.0.0.2"]) == "10.0.0.1"
    assert advertised("127.0.0.1", []) == "127.0.0.1"
