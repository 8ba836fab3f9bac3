"""Under which address others find what listens here."""

from __future__ import annotations

import socket

import pytest

from holdfast_sidecar.config import addresses
from holdfast_sidecar.config.addresses import (
    interface_towards,
    is_loopback,
    parse_advertise,
    told_address,
)
from holdfast_sidecar.config.settings import SidecarSettings


def told(listen: str, advertise: str = "", **more: str) -> str:
    sidecar = SidecarSettings(listen=listen, advertise=advertise, **more)  # type: ignore[arg-type]
    return told_address(sidecar, 4321, "redis://127.0.0.1:6379")


@pytest.mark.parametrize(
    ("listen", "advertise", "address"),
    [
        ("127.0.0.1:0", "", "127.0.0.1:4321"),
        ("[fd00::7]:0", "", "[fd00::7]:4321"),
        ("10.1.2.3:4321", "", "10.1.2.3:4321"),
        ("0.0.0.0:4321", "node7", "node7:4321"),
        ("0.0.0.0:4321", "node7.cluster:80", "node7.cluster:80"),
        ("[::]:4321", "fd00::7", "[fd00::7]:4321"),
        ("[::]:4321", "[fd00::7]:80", "[fd00::7]:80"),
    ],
)
def test_the_address_is_what_was_given_or_where_it_listens(
    listen: str, advertise: str, address: str
) -> None:
    assert told(listen, advertise) == address


def test_on_a_wildcard_it_is_the_interface_on_which_redis_is_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(addresses, "interface_towards", lambda url: "10.7.7.7")
    assert told("0.0.0.0:0") == "10.7.7.7:4321"


def test_on_the_machine_that_runs_redis_it_is_the_machine_s_name() -> None:
    assert told("0.0.0.0:0") == f"{socket.gethostname()}:4321"


def test_who_speaks_tls_says_so() -> None:
    assert told("127.0.0.1:0", tls_cert_file="/c", tls_key_file="/k") == "https://127.0.0.1:4321"


@pytest.mark.parametrize("given", ["node7:", "node7:http", ":9750", "node7:0", "node7:70000"])
def test_what_can_not_be_advertised_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="neither HOST nor HOST:PORT"):
        parse_advertise(given)


def test_redis_in_a_file_shows_no_way_to_others() -> None:
    assert interface_towards("unix:///tmp/r.sock") == ""
    assert interface_towards("") == ""
    assert is_loopback(interface_towards("redis://127.0.0.1:6379"))
