"""The units for systemd: valid by its own judgement, and no stricter than what must be seen."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.systemd_unit import Unit, read_environment
from tests.unit.deploy.known_words import known_variables, mentioned, parse_command, parse_run
from tests.unit.deploy.manifests import DEPLOY

from holdfast_sidecar.config.settings import PolicySettings
from holdfast_sidecar.lifecycle import WRITING
from holdfast_sidecar.linux.threads import NICENESS
from holdfast_sidecar.policy.budget import EXIT_DO_NOT_REQUEUE, EXIT_REQUEUE
from holdfast_sidecar.policy.start import EXIT_BAD_INPUT

FOLDER = DEPLOY / "systemd"
SIDECAR = FOLDER / "holdfast-sidecar@.service"
RUN = FOLDER / "holdfast-run@.service"
UNITS = pytest.mark.parametrize("path", [SIDECAR, RUN], ids=lambda path: path.stem)

ENVIRONMENT = read_environment(FOLDER / "llama.env")


def needs(program: str) -> str:
    found = shutil.which(program)
    if found is None and os.environ.get("CI") == "true":
        pytest.fail(f"there is no {program}: in CI this test must run")
    return found or pytest.skip(f"there is no {program} (Debian's systemd)")


def installed(path: Path, folder: Path) -> Path:
    """The unit where systemd could find it, with a program that is there."""
    program = folder / "holdfast"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = folder / path.name.replace("@.", "@llama.")
    unit.write_text(path.read_text().replace("/opt/holdfast/bin/holdfast", str(program)))
    return unit


def verify(unit: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [needs("systemd-analyze"), "verify", "--man=no", "--recursive-errors=no", unit.name],
        cwd=unit.parent,
        env={"SYSTEMD_UNIT_PATH": f"{unit.parent}:", "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=60,
    )


def about_ours(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What it says of our units: the machine's own may have faults of theirs."""
    return [line for line in done.stderr.splitlines() if "holdfast" in line]


@pytest.mark.systemd
@UNITS
def test_systemd_finds_nothing_wrong_with_it(path: Path, tmp_path: Path) -> None:
    done = verify(installed(path, tmp_path))
    assert (done.returncode, about_ours(done)) == (0, []), done.stderr


@pytest.mark.systemd
def test_systemd_finds_a_word_that_it_does_not_know(tmp_path: Path) -> None:
    unit = installed(SIDECAR, tmp_path)
    unit.write_text(unit.read_text().replace("KillMode=mixed", "KillMode=gentle"))
    (line,) = about_ours(verify(unit))
    assert "gentle" in line


@UNITS
def test_the_command_is_one_that_holdfast_takes_with_the_shipped_environment(path: Path) -> None:
    words = Unit.read(path).command("llama", "host7", ENVIRONMENT)
    assert words[0] == "/opt/holdfast/bin/holdfast"
    if words[1] == "run":
        parsed, effective = parse_run(["holdfast", *words[1:]], ENVIRONMENT)
        assert (parsed.job, parsed.node, parsed.spares) == ("llama", "host7", 1)
    else:
        options, effective = parse_command(["holdfast", *words[1:]], ENVIRONMENT)
        assert (options["job"], options["node"]) == ("llama", "host7")
    settings = effective.settings
    assert settings.redis.password_file == "/etc/holdfast/redis-password"
    assert settings.paths.state_dir == f"/var/lib/{Unit.read(path)['StateDirectory']}"
    assert settings.sidecar.listen == "127.0.0.1:9750"


def test_every_variable_of_the_environment_file_is_known() -> None:
    assert mentioned((FOLDER / "llama.env").read_text()) <= known_variables()
    ours = {name for name in ENVIRONMENT if name.startswith("HOLDFAST_")}
    assert ours <= known_variables()
    assert ENVIRONMENT.keys() - ours == {"RUN_ARGUMENTS"}


def test_a_shell_reads_the_environment_file_as_systemd_does() -> None:
    """Whoever starts torchrun by hand sources it."""
    script = f"set -eua; . {shlex.quote(str(FOLDER / 'llama.env'))}; exec env -0"
    done = subprocess.run(
        ["sh", "-c", script], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True
    )
    told = dict(entry.partition("=")[::2] for entry in done.stdout.split("\0") if entry)
    assert done.returncode == 0, done.stderr
    assert {name: told.get(name) for name in ENVIRONMENT} == ENVIRONMENT


def test_the_sidecar_is_kept_up_and_has_time_to_write_down_what_it_writes() -> None:
    unit = Unit.read(SIDECAR)
    assert (unit["Restart"], unit["StartLimitIntervalSec"]) == ("always", "0")
    assert unit["RestartPreventExitStatus"] == str(EXIT_BAD_INPUT)
    assert int(unit["TimeoutStopSec"]) > WRITING.most_s
    # Its children (who writes checkpoints, who asks the driver) are ended by itself.
    assert unit["KillMode"] == "mixed"
    assert int(unit["LimitNICE"]) == NICENESS


def test_the_sidecar_may_do_what_its_probes_need_and_is_not_limited_in_shared_memory() -> None:
    unit = Unit.read(SIDECAR)
    assert "MemoryMax" not in unit
    for hidden in ("PrivateTmp", "PrivateDevices", "ProtectKernelLogs", "ProtectClock"):
        assert unit[hidden] == "no"
    for closed in ("PrivateNetwork", "PrivatePIDs", "ProtectProc", "DevicePolicy", "RemoveIPC"):
        assert closed not in unit
    families = set(unit["RestrictAddressFamilies"].split())
    assert families == {"AF_UNIX", "AF_INET", "AF_INET6", "AF_NETLINK"}
    assert unit["NoNewPrivileges"] == "yes"
    assert unit["AmbientCapabilities"] == unit["CapabilityBoundingSet"] == "CAP_SYSLOG"


def test_the_launcher_is_told_alone_saves_and_comes_again_only_where_that_helps() -> None:
    unit = Unit.read(RUN)
    assert unit["KillMode"] == "mixed"
    assert int(unit["TimeoutStopSec"]) > PolicySettings().preemption_grace_s + 5
    assert unit["Restart"] == "on-failure"
    assert unit["RestartForceExitStatus"] == unit["SuccessExitStatus"] == str(EXIT_REQUEUE)
    never = {int(code) for code in unit["RestartPreventExitStatus"].split()}
    assert never == {1, EXIT_BAD_INPUT, EXIT_DO_NOT_REQUEUE}


@UNITS
def test_no_secret_stands_in_a_unit_or_on_its_command_line(path: Path) -> None:
    text = path.read_text() + (FOLDER / "llama.env").read_text()
    assert not re.search(r"PASSWORD=|requirepass|redis://[^\s/]*:[^\s/@]*@", text)
