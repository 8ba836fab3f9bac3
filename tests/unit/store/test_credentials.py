from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from redis.sentinel import SentinelConnectionPool

from holdfast.contract import environment as names
from holdfast_sidecar.config.settings import BadInput, RedisSettings
from holdfast_sidecar.store.connection import connect, open_store

HOST = "redis://h"


def credentials(settings: RedisSettings, environment: Mapping[str, str]) -> tuple[str, ...] | None:
    """What a client so made would authenticate with."""
    provider = connect(settings, environment).get_connection_kwargs()["credential_provider"]
    return None if provider is None else tuple(provider.get_credentials())


@pytest.fixture
def password_file(tmp_path: Path) -> str:
    path = tmp_path / "password"
    path.write_text("from-file\n")
    return str(path)


def test_without_a_password_nothing_is_sent() -> None:
    assert credentials(RedisSettings(url=HOST), {}) is None


def test_a_file_named_in_the_settings_comes_before_the_environment(password_file: str) -> None:
    settings = RedisSettings(url=HOST, password_file=password_file)
    environment = {names.REDIS_PASSWORD: "p", names.REDIS_PASSWORD_FILE: "/nowhere"}
    assert credentials(settings, environment) == ("from-file",)


def test_a_password_in_the_environment_comes_before_a_file_there(password_file: str) -> None:
    environment = {names.REDIS_PASSWORD: "p", names.REDIS_PASSWORD_FILE: password_file}
    assert credentials(RedisSettings(url=HOST), environment) == ("p",)


def test_a_file_named_in_the_environment_is_read(password_file: str) -> None:
    environment = {names.REDIS_PASSWORD_FILE: password_file}
    assert credentials(RedisSettings(url=HOST), environment) == ("from-file",)


def test_a_password_in_the_environments_url_comes_last() -> None:
    url = "redis://me:in-url@h"
    assert credentials(RedisSettings(), {names.REDIS_URL: url}) == ("me", "in-url")
    environment = {names.REDIS_URL: url, names.REDIS_PASSWORD: "p"}
    assert credentials(RedisSettings(), environment) == ("me", "p")


def test_the_user_comes_from_settings_then_environment_then_url() -> None:
    environment = {names.REDIS_PASSWORD: "p"}
    with_user = environment | {names.REDIS_USER: "env"}
    url = "redis://url@h"
    assert credentials(RedisSettings(url=url), environment) == ("url", "p")
    assert credentials(RedisSettings(url=url), with_user) == ("env", "p")
    assert credentials(RedisSettings(url=url, user="set"), with_user) == ("set", "p")


def test_a_password_in_a_url_given_openly_is_refused_without_repeating_it() -> None:
    with pytest.raises(BadInput, match=names.REDIS_PASSWORD) as refused:
        connect(RedisSettings(url="redis://me:secret@h"), {names.REDIS_URL: "redis://h"})
    assert "secret" not in str(refused.value)
    assert "--redis-password-file" in str(refused.value)


def test_a_user_without_a_password_is_refused() -> None:
    with pytest.raises(BadInput, match=r"user 'me' but no password"):
        connect(RedisSettings(url="redis://me@h"), {})


def test_a_password_file_that_cannot_be_read_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"nowhere: No such file"):
        connect(RedisSettings(url=HOST, password_file=str(tmp_path / "nowhere")), {})


def test_an_empty_password_file_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(BadInput, match=r"empty is empty"):
        connect(RedisSettings(url=HOST, password_file=str(tmp_path / "empty")), {})


def test_a_password_file_that_is_not_text_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match=r"binary: not text"):
        connect(RedisSettings(url=HOST, password_file=str(tmp_path / "binary")), {})


def test_without_any_url_it_says_how_to_give_one() -> None:
    with pytest.raises(BadInput, match=rf"--redis URL or set {names.REDIS_URL}"):
        open_store(RedisSettings(), "job", {})


def test_sentinels_get_the_password_only_when_asked_for() -> None:
    environment = {names.REDIS_PASSWORD: "p"}
    for url, expected in (
        ("redis+sentinel://h/service", None),
        ("redis+sentinel://h/service?sentinel_auth=1", ("p",)),
    ):
        client = connect(RedisSettings(url=url), environment)
        assert isinstance(client.connection_pool, SentinelConnectionPool)
        (sentinel,) = client.connection_pool.sentinel_manager.sentinels
        provider = sentinel.get_connection_kwargs()["credential_provider"]
        assert (provider and provider.get_credentials()) == expected
        assert credentials(RedisSettings(url=url), environment) == ("p",)


@pytest.mark.parametrize(
    "url", ["redis://h", "rediss://h", "unix:///s", "redis+sentinel://h/s", "rediss+sentinel://h/s"]
)
def test_no_call_outlasts_the_timeout(url: str) -> None:
    client = connect(RedisSettings(url=url, timeout_s=0.25), {})
    options = client.get_connection_kwargs()
    assert options["socket_timeout"] == 0.25
    assert options.get("socket_connect_timeout", 0.25) == 0.25  # a socket path has no other
    assert options["retry"]._retries == 0
