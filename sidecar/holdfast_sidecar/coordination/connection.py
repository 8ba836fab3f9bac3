"""Connecting to the coordination server: clients and stores from settings."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from holdfast import environment as names
from holdfast_sidecar.config.addresses import Address, describe, parse_address
from holdfast_sidecar.config.settings import BadInput, RedisSettings
from holdfast_sidecar.coordination.credentials import (
    Credentials,
    find_credentials,
    refuse_visible_password,
)
from holdfast_sidecar.coordination.redis_store import RedisStore

__all__ = ["connect", "describe", "open_store"]

KEEPALIVE = {socket.TCP_KEEPIDLE: 5, socket.TCP_KEEPINTVL: 2, socket.TCP_KEEPCNT: 3}
"""A listener never writes, so only keepalive tells it, after some 11 s, that its peer is gone."""


def connect(settings: RedisSettings, environment: Mapping[str, str]) -> redis.Redis:
    """A client of the server that the settings (or, without a URL, the environment) name.

    Nothing is sent yet. BadInput when URL, user or password can't be right.
    """
    url = settings.url or environment.get(names.REDIS_URL, "")
    if not url:
        raise BadInput(f"no Redis server given: use --redis URL or set {names.REDIS_URL}")
    address = parse_address(url)
    refuse_visible_password(settings, address, environment)
    credentials = find_credentials(settings, address, environment)
    options = _options(settings, address)
    if address.uses_sentinel:
        return _behind_sentinel(address, options, credentials)
    where: dict[str, Any]
    if address.path:
        where = {"unix_socket_path": address.path}
    else:
        (host, port), *_ = address.hosts
        where = {"host": host, "port": port}
    return redis.Redis(**where, **options, db=address.db, credential_provider=credentials)


def open_store(
    settings: RedisSettings,
    job: str,
    environment: Mapping[str, str],
    *,
    hears_reports: bool = True,
) -> RedisStore:
    """This job's store on that server; nothing is sent yet."""
    return RedisStore(connect(settings, environment), job, hears_reports=hears_reports)


def _options(settings: RedisSettings, address: Address) -> dict[str, Any]:
    options: dict[str, Any] = {
        "socket_timeout": settings.timeout_s,
        "socket_connect_timeout": settings.timeout_s,
        # The caller comes again at its next tick; a client that retries would outlast the timeout.
        "retry": Retry(NoBackoff(), 0),
        "decode_responses": True,
        "encoding_errors": "replace",
        "protocol": 2,
    }
    if not address.path:
        options |= {"socket_keepalive": True, "socket_keepalive_options": KEEPALIVE}
    if address.uses_tls:
        options |= {"ssl": True, "ssl_cert_reqs": "required", "ssl_check_hostname": True}
        options |= dict(address.tls_files)
    return options


def _behind_sentinel(
    address: Address, options: dict[str, Any], credentials: Credentials | None
) -> redis.Redis:
    sentinel_options = options | {
        "credential_provider": credentials if address.sentinel_auth else None
    }
    sentinel = Sentinel(  # type: ignore[no-untyped-call]
        list(address.hosts),
        sentinel_kwargs=sentinel_options,
        **options,
        db=address.db,
        credential_provider=credentials,
    )
    client: redis.Redis = sentinel.master_for(address.service)  # type: ignore[no-untyped-call]
    return client
