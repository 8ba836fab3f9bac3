from __future__ import annotations

import socket
import threading

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from holdfast_sidecar.launcher.attempt_store import (  # noqa: E402
    Connecting,
    Endpoint,
    is_reachable,
    open_store,
    parse_endpoint,
)


def test_an_endpoint_survives_the_wire_and_nonsense_is_none() -> None:
    endpoint = Endpoint("abc-1", "10.0.0.1", 4711)
    assert parse_endpoint(str(endpoint)) == endpoint
    assert [parse_endpoint(text) for text in (None, "", "a b c", "a b 1 d")] == [None] * 4


def test_members_meet_on_the_store_that_one_of_them_opened() -> None:
    served = open_store("127.0.0.1")
    endpoint = Endpoint("x", "127.0.0.1", served.port)
    assert is_reachable(endpoint, 1.0)
    store = Connecting(endpoint).wait(10.0)
    assert store is not None
    store.set("key", "value")
    assert served.get("key") == b"value"


def test_the_store_listens_only_where_it_was_told() -> None:
    served = open_store("127.0.0.1")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", served.port), 1.0)


def test_a_store_whose_host_is_frozen_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as frozen:  # the kernel still takes connections
        endpoint = Endpoint("x", "127.0.0.1", frozen.getsockname()[1])
        assert is_reachable(endpoint, 1.0)
        before = threading.active_count()
        connecting = Connecting(endpoint)
        assert [connecting.wait(0.1) for _ in range(5)] == [None] * 5
        assert threading.active_count() <= before + 1  # what hangs is not tried once more


def test_a_store_that_is_gone_is_not_reachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert not is_reachable(Endpoint("x", "127.0.0.1", port), 1.0)
