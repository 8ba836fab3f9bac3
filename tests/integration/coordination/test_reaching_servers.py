"""Every way of reaching a server, on a real one: URLs, TLS, users, passwords, rights."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.servers import Server, free_port, plain_on_port, plain_on_socket

from holdfast.contract import environment as names
from holdfast_sidecar.config.addresses import without_password
from holdfast_sidecar.config.settings import BadInput, RedisSettings
from holdfast_sidecar.store.connection import check_server, connect, open_store
from holdfast_sidecar.store.protocol import Lease, Section, Store, StoreUnavailable

SECRET = "correct-horse-battery-staple"


def works(store: Store) -> bool:
    """One of everything."""
    lease = store.campaign("a", 30, 0)
    store.report(Section.NODES, "a", "1")
    store.claim(Section.ENDPOINTS, "0", "host:1")
    store.keep(60)
    return (
        lease == Lease(1, "a")
        and store.order(lease, Section.PLAN, "current", "1", None)
        and bool(store.wait(1))
        and store.read().section(Section.PLAN) == {"current": "1"}
    )


@pytest.fixture
def secret_server(short_path: Path) -> Iterator[Server]:
    """A server whose default user has a password."""
    server = plain_on_port(short_path, "--requirepass", SECRET)
    server.environment = {names.REDIS_PASSWORD: SECRET}
    yield server.start()
    server.kill()


@pytest.fixture
def acl_server(short_path: Path) -> Iterator[Server]:
    """A server with the user of docs/redis.md, and nobody else."""
    rules = [f"user default on >{SECRET}-of-admin ~* &* +@all", documented_user(SECRET)]
    (short_path / "users.acl").write_text("\n".join(rules) + "\n")
    server = plain_on_socket(short_path, "--aclfile", str(short_path / "users.acl"))
    server.environment = {names.REDIS_USER: "holdfast", names.REDIS_PASSWORD: SECRET}
    yield server.start()
    server.kill()


def documented_user(password: str) -> str:
    """The ACL rule that docs/redis.md tells people to use."""
    text = (Path(__file__).parents[3] / "docs" / "redis.md").read_text()
    rule = re.search(r"^user holdfast .*$", text, re.MULTILINE)
    assert rule is not None
    return rule[0].replace(">PASSWORD", f">{password}")


def test_a_unix_socket_works(server: Server) -> None:
    assert works(server.store())
    assert check_server(server.client()) == []


def test_a_tcp_port_works(tcp_server: Server) -> None:
    assert works(tcp_server.store())
    assert check_server(tcp_server.client()) == []


def test_a_check_leaves_no_lasting_key_behind(server: Server) -> None:
    check_server(server.client())
    client = server.client()
    assert all(0 < client.pttl(key) <= 1000 for key in client.keys("*"))


def test_the_environment_alone_is_enough(tcp_server: Server) -> None:
    assert works(open_store(RedisSettings(), "job", {names.REDIS_URL: tcp_server.settings.url}))


def test_databases_are_apart(tcp_server: Server) -> None:
    second = open_store(tcp_server.with_settings(url=f"{tcp_server.settings.url}/1"), "job", {})
    assert works(second)
    assert tcp_server.store().read().sections == {}


@pytest.mark.redis_server
def test_tls_works_with_the_right_authority(tls_server: Server) -> None:
    assert works(tls_server.store())
    assert check_server(tls_server.client()) == []


@pytest.mark.redis_server
def test_tls_refuses_a_server_nobody_vouches_for(tls_server: Server) -> None:
    url = tls_server.settings.url.partition("?")[0]
    with pytest.raises(StoreUnavailable, match=r"(?i)certificate"):
        open_store(tls_server.with_settings(url=url), "job", {}).read()
    (problem,) = check_server(connect(tls_server.with_settings(url=url), {}))
    assert problem.kind == "untrusted"
    assert "ssl_ca_certs" in problem.line


@pytest.mark.redis_server
def test_tls_refuses_a_server_of_another_name(tls_server: Server) -> None:
    url = tls_server.settings.url.replace("127.0.0.1", "localhost")
    with pytest.raises(StoreUnavailable, match=r"(?i)hostname|certificate"):
        open_store(tls_server.with_settings(url=url), "job", {}).read()


def test_a_password_from_the_environment_works(secret_server: Server) -> None:
    assert works(secret_server.store())


def test_a_password_in_the_environments_url_works(secret_server: Server) -> None:
    url = secret_server.settings.url.replace("redis://", f"redis://:{SECRET}@")
    assert works(open_store(RedisSettings(), "job", {names.REDIS_URL: url}))
    assert works(open_store(RedisSettings(url=url), "other", {names.REDIS_URL: url}))


def test_a_password_file_works_and_may_change(secret_server: Server, tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text(f"{SECRET}\n")
    settings = secret_server.with_settings(password_file=str(path))
    store = open_store(settings, "job", {names.REDIS_PASSWORD: "not this one"})
    assert works(store)
    secret_server.client().config_set("requirepass", "a-new-one")
    path.write_text("a-new-one")
    store.close()
    assert store.read().lease == Lease(1, "a")
    path.unlink()
    store.close()
    with pytest.raises(StoreUnavailable, match="No such file"):
        store.read()


@pytest.mark.parametrize("password", ["wrong", ""])
def test_a_refused_password_is_one_line_without_the_secret(
    secret_server: Server, password: str
) -> None:
    environment = {names.REDIS_PASSWORD: password}
    client = connect(secret_server.settings, environment)
    (problem,) = check_server(client)
    assert problem.kind == "refused"
    assert names.REDIS_PASSWORD in problem.line
    assert "wrong" not in problem.line
    with pytest.raises(StoreUnavailable):
        open_store(secret_server.settings, "job", environment).read()


def test_the_documented_user_has_exactly_the_rights_it_needs(acl_server: Server) -> None:
    admin = connect(acl_server.settings, {names.REDIS_PASSWORD: f"{SECRET}-of-admin"})
    admin.acl_log_reset()
    assert works(acl_server.store())
    assert check_server(acl_server.client()) == []
    refused = {entry["object"] for entry in admin.acl_log()}
    assert refused <= {"client|setinfo"}, "Holdfast tried something that it may not do"
    rule = documented_user(SECRET).split()
    for right in (word for word in rule if word.startswith("+")):
        admin.acl_setuser("holdfast", reset=True)
        rest = [word for word in rule[2:] if word != right]
        admin.execute_command("ACL", "SETUSER", "holdfast", *rest)
        problems = check_server(acl_server.client())
        assert [problem.kind for problem in problems] == ["rights"], f"{right} is not needed"


@pytest.mark.parametrize("pattern", ["~holdfast:*", "&holdfast:*"])
def test_a_user_without_our_keys_or_channel_is_told_so(acl_server: Server, pattern: str) -> None:
    admin = connect(acl_server.settings, {names.REDIS_PASSWORD: f"{SECRET}-of-admin"})
    admin.acl_setuser("holdfast", reset=True)
    rest = [word for word in documented_user(SECRET).split()[2:] if word != pattern]
    admin.execute_command("ACL", "SETUSER", "holdfast", *rest)
    (problem,) = check_server(acl_server.client())
    assert problem.kind == "rights"
    assert "docs/redis.md" in problem.line


def test_the_documented_user_may_touch_nothing_else(acl_server: Server) -> None:
    client = acl_server.client()
    for refused in (
        lambda: client.set("someone:else", "1"),
        lambda: client.publish("someone:else", "1"),
        lambda: client.flushall(),
        lambda: client.keys("*"),
        lambda: client.config_get("*"),
    ):
        with pytest.raises(Exception, match=r"NOPERM|permissions"):
            refused()


def test_a_server_that_is_not_there_is_unreachable() -> None:
    client = connect(RedisSettings(url=f"redis://127.0.0.1:{free_port()}"), {})
    (problem,) = check_server(client)
    assert problem.kind == "unreachable"
    assert "127.0.0.1" in problem.line


def test_a_paused_server_is_unreachable(server: Server) -> None:
    client = connect(server.with_settings(timeout_s=0.2), {})
    server.pause()
    try:
        (problem,) = check_server(client)
    finally:
        server.resume()
    assert problem.kind == "unreachable"


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-lru", "volatile-ttl"])
def test_a_server_that_may_evict_is_refused(server: Server, policy: str) -> None:
    server.client().config_set("maxmemory-policy", policy)
    (problem,) = check_server(server.client())
    assert problem.kind == "evicts"
    assert policy in problem.line
    assert "noeviction" in problem.line


def test_a_replica_is_refused(tcp_server: Server, tmp_path: Path) -> None:
    port = tcp_server.settings.url.rpartition(":")[2]
    replica = plain_on_port(tmp_path, "--replicaof", "127.0.0.1", port).start()
    try:
        (problem,) = check_server(replica.client())
        with pytest.raises(StoreUnavailable):
            replica.store().campaign("a", 30, 0)
    finally:
        replica.kill()
    assert problem.kind == "replica"


def test_the_secret_shows_nowhere(
    secret_server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not in what a client, a store or an error says of itself, at any level of logging."""
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "password"
    path.write_text(SECRET)
    url = secret_server.settings.url.replace("redis://", f"redis://:{SECRET}@")
    told: list[str] = []
    for settings, environment in (
        (replace(secret_server.settings, password_file=str(path)), {}),
        (secret_server.settings, {names.REDIS_PASSWORD: SECRET}),
        (RedisSettings(), {names.REDIS_URL: url}),
    ):
        client = connect(settings, environment)
        store = open_store(settings, "job", environment)
        store.read()
        told += [repr(client), str(client), repr(client.connection_pool), repr(store)]
        told += [repr(client.connection_pool.make_connection()), str(check_server(client))]
        told.append(without_password(environment.get(names.REDIS_URL, settings.url)))
    secret_server.kill()
    with pytest.raises(StoreUnavailable) as caught:
        store.read()
    told += [str(caught.value), repr(caught.value.__cause__), caplog.text]
    with pytest.raises(BadInput) as refused:
        connect(RedisSettings(url=url), {})
    told.append(str(refused.value))
    assert [line for line in told if SECRET in line] == []
