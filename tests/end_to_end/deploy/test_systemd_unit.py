"""The systemd unit started as it stands: its command, user, environment, limits and hardening (what
of it a mount namespace, prlimit and setpriv can do), with plain torchrun beside it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from tests import servers
from tests.end_to_end.deploy.asking import PATIENCE_S, ask, await_that
from tests.end_to_end.restricted.surroundings import NOBODY, REPOSITORY, may_make_them, open_up
from tests.systemd_unit import Unit, read_environment

from holdfast_sidecar.linux.threads import NICENESS

pytestmark = [
    pytest.mark.torch,
    pytest.mark.root,
    pytest.mark.skipif(
        not may_make_them() and not os.environ.get("CI"), reason="mount namespaces need root"
    ),
]

FOLDER = REPOSITORY / "deploy" / "systemd"
UNIT = Unit.read(FOLDER / "holdfast-sidecar@.service")
TRAINING = REPOSITORY / "tests" / "end_to_end" / "restricted" / "training.py"
HOLDFAST = [sys.executable, "-m", "holdfast_sidecar.cli.main"]

CAP_SYSLOG = 34


@dataclass
class Machine:
    """Where a unit's user, directories and server are; everything dies with the test."""

    folder: Path
    server: servers.Server
    started: list[subprocess.Popen[bytes]]

    @property
    def environment(self) -> dict[str, str]:
        """The shipped environment file, with addresses and directories of this test."""
        shipped = read_environment(FOLDER / "llama.env")
        return shipped | {
            "HOLDFAST_REDIS": self.server.settings.url,
            "HOLDFAST_REDIS_PASSWORD_FILE": str(self.folder / "password"),
            "HOLDFAST_SET_CHECKPOINT_DIR": str(self.folder / "checkpoints"),
            "HOLDFAST_SET_PATHS_STATE_DIR": str(self.folder / "state"),
            "HOLDFAST_SET_PATHS_SHM_DIR": str(self.folder / "shm"),
            "HOLDFAST_SET_SIDECAR_LISTEN": self.listen,
            "HOLDFAST_SET_SNAPSHOT_PEER_LISTEN": "127.0.0.1:0",
        }

    @property
    def listen(self) -> str:
        return (self.folder / "listen").read_text()

    def sidecar(self, **changes: str) -> subprocess.Popen[bytes]:
        """What ExecStart says, in the surroundings of the unit; the process is the sidecar."""
        command = UNIT.command("llama", socket.gethostname(), self.environment)
        return self.start([*HOLDFAST, *command[1:]], "sidecar", UNIT.surroundings(NOBODY), changes)

    def torchrun(self, *arguments: str) -> subprocess.Popen[bytes]:
        """As the unit's user does by hand, with the same environment file."""
        program = [sys.executable, "-m", "torch.distributed.run", *arguments]
        user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        return self.start(program, "torchrun", user, {})

    def start(
        self, program: list[str], name: str, around: list[str], changes: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        needed = [Path(sys.prefix), Path(sys.base_prefix), REPOSITORY]
        opened = "\n".join(["set -e", *open_up(needed, self.folder), 'exec "$@"'])
        kept = {name: value for name, value in os.environ.items() if not name.startswith(OUTSIDE)}
        own = {"OUT": str(self.folder), "OMP_NUM_THREADS": "1"}
        with self.log(name).open("ab") as log:
            process = subprocess.Popen(
                [*ALONE, opened, "sh", *around, *program],
                cwd=self.folder,
                env=kept | own | self.environment | changes,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def page(self) -> str:
        return ask(self.listen)

    def await_that(self, is_so: Callable[[], bool], what: str) -> None:
        await_that(is_so, what, self.story)

    def story(self) -> str:
        return "\n".join(f"-- {p.name}\n{p.read_text()[-4000:]}" for p in self.folder.glob("*.log"))


PASSWORD = "of-a-test"

ALONE = ("unshare", "--mount", "--propagation=private", "sh", "-c")

OUTSIDE = ("HOLDFAST_", "PET_", "SLURM_", "XDG_", "HOME", "USER", "LOGNAME")


@pytest.fixture
def machine(short_path: Path) -> Iterator[Machine]:
    pytest.importorskip("torch")
    folder = Path(tempfile.mkdtemp(prefix="hf-systemd-", dir="/tmp"))
    folder.chmod(0o755)
    for name in ("checkpoints", "state", "shm"):
        (folder / name).mkdir()
    (folder / "password").write_text(PASSWORD)
    (folder / "listen").write_text(f"127.0.0.1:{servers.free_port()}")
    for path in [folder, *folder.iterdir()]:
        os.chown(path, NOBODY, NOBODY)
    server = servers.plain_on_port(short_path, "--requirepass", PASSWORD)
    server.environment = {"HOLDFAST_REDIS_PASSWORD": PASSWORD}
    server.start()
    made = Machine(folder, server, [])
    try:
        yield made
    finally:
        for process in reversed(made.started):
            end_all(process)
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


def end_all(process: subprocess.Popen[bytes]) -> None:
    """What was started, and what that has started."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for one in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
    process.kill()
    process.wait()


def status(process: subprocess.Popen[bytes]) -> dict[str, str]:
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_the_sidecar_serves_its_node_as_the_units_user_and_leaves_when_told(
    machine: Machine,
) -> None:
    sidecar = machine.sidecar()
    machine.await_that(lambda: 'run="llama"' in machine.page(), "metrics of the job")
    told = status(sidecar)
    assert told["Uid"].split() == [str(NOBODY)] * 4
    assert told["NoNewPrivs"] == "1"
    for which in ("CapEff", "CapBnd", "CapAmb"):
        assert int(told[which], 16) == 1 << CAP_SYSLOG, which
    # Its limit allows what an unprivileged user may not ask for.
    limits = Path(f"/proc/{sidecar.pid}/limits").read_text()
    (most,) = re.findall(r"Max nice priority +(\d+)", limits)
    if int(most) >= 20 - NICENESS:  # where it could be raised
        assert psutil.Process(sidecar.pid).nice() == NICENESS
    mounted = Path(f"/proc/{sidecar.pid}/mounts").read_text()
    options = [one.split()[3] for one in mounted.splitlines() if one.split()[1] == "/usr"]
    assert options[-1].startswith("ro")

    trained = machine.torchrun(
        *("--nnodes=1", "--nproc-per-node=1", "--max-restarts=3", "--rdzv-backend=holdfast"),
        *(f"--rdzv-endpoint={machine.server.settings.url}", "--rdzv-id=llama", str(TRAINING)),
    )
    assert trained.wait(PATIENCE_S) == 0, machine.story()
    assert list(machine.folder.glob("0-0-from-0"))
    assert "probe kernel_log fails" not in machine.log("sidecar").read_text()

    sidecar.send_signal(signal.SIGTERM)
    assert sidecar.wait(15) == 0, machine.story()
    assert "Traceback" not in machine.log("sidecar").read_text()


def test_what_systemd_must_not_start_again_ends_with_the_code_that_the_unit_names(
    machine: Machine,
) -> None:
    sidecar = machine.sidecar(HOLDFAST_REDIS="gopher://nowhere")
    assert sidecar.wait(PATIENCE_S) == int(UNIT["RestartPreventExitStatus"])
    (line,) = machine.log("sidecar").read_text().splitlines()
    assert line.startswith("holdfast: ")
