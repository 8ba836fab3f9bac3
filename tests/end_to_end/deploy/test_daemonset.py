"""The DaemonSet's container as it stands: its command, a user without a name, a root file system
that nobody writes, and this machine's /proc and /sys mounted where a host's would be."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import servers
from tests.end_to_end.deploy.asking import ask, await_that
from tests.end_to_end.restricted.surroundings import NOBODY, Surroundings, may_make_them
from tests.unit.deploy.manifests import environment, pod, words

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(
        not may_make_them() and not os.environ.get("CI"), reason="mount namespaces need root"
    ),
]

CONTAINER = pod("daemonset.yaml").container("holdfast")


@pytest.fixture
def host() -> Iterator[Path]:
    """Where the host's trees are mounted, in a namespace of the test's own."""
    made = Path(tempfile.mkdtemp(prefix="hf-host-", dir="/tmp"))
    made.chmod(0o755)
    for name in ("proc", "sys"):
        (made / name).mkdir()
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="hf-daemonset-", dir="/tmp"))
    for name in ("state", "tmp"):
        (made / name).mkdir()
    for path in (made, made / "state", made / "tmp"):
        os.chown(path, NOBODY, NOBODY)
        path.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


def command(host: Path, folder: Path, address: str, server: servers.Server) -> list[str]:
    """The container's own, with this test's places in the place of mounts and Services."""
    here = {
        "/host": str(host),
        "/state": str(folder / "state"),
        "/secrets/redis/password": str(folder / "password"),
        "redis://redis:6379": server.settings.url,
        "0.0.0.0:9750": address,
    }
    given = []
    for word in words(CONTAINER)[1:]:
        option, equals, value = word.rpartition("=")
        given.append(option + equals + here.get(value, value))
    assert all(any(place in word for word in given) for place in here.values())
    return [sys.executable, "-m", "holdfast_sidecar.cli.main", *given]


def test_a_machine_without_a_job_tells_of_itself_without_any_right(
    host: Path, folder: Path, short_path: Path
) -> None:
    (folder / "password").write_text("of-a-test")
    server = servers.plain_on_port(short_path, "--requirepass", "of-a-test")
    server.environment = {"HOLDFAST_REDIS_PASSWORD": "of-a-test"}
    server.start()
    address = f"127.0.0.1:{servers.free_port()}"
    around = Surroundings(is_root=False, has_read_only_root=True)
    inner = around.command(folder, command(host, folder, address, server))
    mounted = [f"mount --rbind /{name} {host}/{name}" for name in ("proc", "sys")]
    script = "\n".join(["set -e", *mounted, f"exec {shlex.join(inner)}"])
    outside = ("HOLDFAST_", "XDG_", "HOME", "USER", "LOGNAME")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(outside)}
    log = folder / "sidecar.log"
    with log.open("wb") as output:
        sidecar = subprocess.Popen(
            ["unshare", "--mount", "--propagation=private", "sh", "-c", script],
            env=kept | {"TMPDIR": str(folder / "tmp")} | environment(CONTAINER),
            stdout=output,
            stderr=output,
        )
    try:
        seen = ("holdfast_host_cpu", "holdfast_node_last_heartbeat_timestamp_seconds")
        await_that(
            lambda: all(name in ask(address) for name in seen), "host and heartbeat", log.read_text
        )
        page = ask(address)
        assert 'run="machines"' in page
        assert 'node="machine-7"' in page
        assert ask(address, "/healthz"), "what the probes ask"
        sidecar.send_signal(signal.SIGTERM)
        grace_s = pod("daemonset.yaml").spec["terminationGracePeriodSeconds"]
        assert sidecar.wait(grace_s) == 0, log.read_text()
        assert "Traceback" not in log.read_text()
    finally:
        sidecar.kill()
        sidecar.wait()
        server.kill()
