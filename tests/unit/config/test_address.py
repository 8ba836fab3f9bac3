from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast_sidecar.config.addresses import (
    ServerAddress,
    describe,
    parse_address,
    without_password,
)
from holdfast_sidecar.config.settings import BadInput


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://h", ServerAddress("redis", (("h", 6379),))),
        ("redis://h:7000/3", ServerAddress("redis", (("h", 7000),), db=3)),
        ("redis://h:7000/?db=3", ServerAddress("redis", (("h", 7000),), db=3)),
        ("redis://[::1]:7000", ServerAddress("redis", (("::1", 7000),))),
        ("redis://me@h", ServerAddress("redis", (("h", 6379),), user="me")),
        ("redis://me:p%40ss@h", ServerAddress("redis", (("h", 6379),), user="me", password="p@ss")),
        ("redis://:p@h", ServerAddress("redis", (("h", 6379),), password="p")),
        ("unix:///run/a%20b/redis.sock", ServerAddress("unix", path="/run/a b/redis.sock")),
        ("unix:///run/redis.sock?db=2", ServerAddress("unix", path="/run/redis.sock", db=2)),
        (
            "rediss://h?ssl_ca_certs=/ca.crt",
            ServerAddress("rediss", (("h", 6379),), tls_files=(("ssl_ca_certs", "/ca.crt"),)),
        ),
        (
            "redis+sentinel://a,b:1,[::1]:2/training?db=1&sentinel_auth=1",
            ServerAddress(
                "redis+sentinel",
                (("a", 26379), ("b", 1), ("::1", 2)),
                service="training",
                db=1,
                sentinel_auth=True,
            ),
        ),
    ],
)
def test_every_documented_form_is_understood(url: str, address: ServerAddress) -> None:
    assert parse_address(url) == address


@pytest.mark.parametrize("scheme", ["rediss", "rediss+sentinel"])
def test_a_second_s_means_tls(scheme: str) -> None:
    assert parse_address(f"{scheme}://h/1").uses_tls
    assert not parse_address(f"{scheme.replace('ss', 's')}://h/1").uses_tls


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("localhost:6379", "not a Redis URL"),
        ("http://h", "redis://host:port"),
        ("redis://", "no host"),
        ("redis://:6379", "no host"),
        ("redis://h:port", "port"),
        ("redis://h/name", "database"),
        ("redis://h?db=-1", "database"),
        ("redis://a,b", "redis\\+sentinel://"),
        ("redis+sentinel://a,b", "no service"),
        ("redis+sentinel:///training", "no host"),
        ("unix://", "no socket"),
        ("redis://h?password=secret", "unknown option 'password'"),
        ("rediss://h?ssl_cert_reqs=none", "known: db, sentinel_auth, ssl_ca_certs"),
        ("redis://:secret?x@h", "%3F"),
        ("redis://:se/cret@h", "%2F"),
        ("redis://:secret#x@h", "%23"),
        ("redis://[::1", "not a Redis URL"),
    ],
)
def test_what_is_none_of_them_is_one_clear_line(url: str, hint: str) -> None:
    with pytest.raises(BadInput, match=hint) as refused:
        parse_address(url)
    assert "\n" not in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://me:secret@h:1/2?db=3", "redis://h:1/2"),
        ("redis://:sec@ret@h", "redis://h"),
        ("redis://:sec/ret@h", "redis://h"),
        ("redis://:sec?ret@h", "redis://h"),
        ("redis://:sec#ret@h", "redis://h"),
        ("redis+sentinel://:secret@a,b:1/service", "redis+sentinel://a,b:1/service"),
        ("unix://:secret@/run/redis.sock?password=secret", "unix:///run/redis.sock"),
        ("unix://:sec/ret@/run/redis.sock", "unix:///run/redis.sock"),
        ("unix:///run/me@home/redis.sock", "unix:///run/me@home/redis.sock"),
        ("unix://", "unix://"),
        ("secret", "(not a URL)"),
        ("secret@h:1", "(not a URL)"),
        ("", "(not a URL)"),
    ],
)
def test_a_described_url_names_the_server_and_no_secret(url: str, shown: str) -> None:
    assert describe(url) == shown


def test_an_address_does_not_show_its_password() -> None:
    assert "secret" not in repr(parse_address("redis://me:secret@h"))


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("rediss://me:secret@h:1/2?ssl_ca_certs=/ca.crt", "rediss://me@h:1/2?ssl_ca_certs=/ca.crt"),
        ("redis://:secret@h", "redis://h"),
        ("redis+sentinel://:secret@a,b/service?db=1", "redis+sentinel://a,b/service?db=1"),
        ("unix://me:secret@/run/redis.sock?db=2", "unix://me@/run/redis.sock?db=2"),
        ("unix:///run/a%20b/redis.sock", "unix:///run/a%20b/redis.sock"),
        ("redis://me@h", "redis://me@h"),
    ],
)
def test_a_kept_url_leads_to_the_same_server_without_its_password(url: str, kept: str) -> None:
    assert without_password(url) == kept
    assert replace(parse_address(url), password="") == parse_address(kept)
