"""The batch script for Slurm by its words; what it does is tried under a real slurmctld."""

from __future__ import annotations

import re
import shlex
import subprocess

from tests.unit.deploy.known_words import known_variables, mentioned, parse_command, parse_run
from tests.unit.deploy.manifests import DEPLOY

from holdfast_sidecar.policy.budget import EXIT_DO_NOT_REQUEUE, EXIT_REQUEUE

SCRIPT = DEPLOY / "slurm" / "holdfast.sbatch"
TEXT = SCRIPT.read_text()
HEAD = TEXT.split("#SBATCH", 1)[0]
OPTIONS = dict(
    line.removeprefix("#SBATCH --").partition("=")[::2]
    for line in TEXT.splitlines()
    if line.startswith("#SBATCH ")
)


def command(start: str) -> list[str]:
    """The words of the command that begins so, with its lines joined; variables become 2."""
    joined = TEXT.replace("\\\n", " ")
    (line,) = [line for line in joined.splitlines() if line.strip().startswith(start)]
    line = re.sub(r"\$\(\(.*?\)\)|\$\{[^}]*\}|\$[A-Za-z_]+", "2", line)
    return shlex.split(line)


def test_bash_can_read_it() -> None:
    done = subprocess.run(["bash", "-n", str(SCRIPT)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_command_is_one_that_holdfast_run_takes() -> None:
    words = command("srun")
    (at,) = [number for number, word in enumerate(words) if word.startswith("exec holdfast run")]
    options = [word for word in words[at + 2 :] if word not in ("$@", "&")]
    parsed, _ = parse_run(["holdfast", "run", "--node", "n0", *options, "train.py"], {})
    assert (parsed.node, parsed.spares, parsed.torch.nproc_per_node) == ("n0", 2, "2")
    ending = re.search(r"holdfast (status --job \S+ --json)", TEXT)
    assert ending is not None
    parse_command(["holdfast", *shlex.split(ending[1].replace("$job", "j"))], {})


def test_every_variable_is_known_or_one_of_the_script_that_its_head_explains() -> None:
    own = mentioned(TEXT) - known_variables()
    assert own == {"HOLDFAST_CHECKPOINTS", "HOLDFAST_RANKS", "HOLDFAST_SPARES"}
    explained = mentioned("\n".join(line[:27] for line in HEAD.splitlines()))
    assert own | {"HOLDFAST_REDIS", "HOLDFAST_JOB"} <= explained
    assert own <= mentioned((DEPLOY / "README.md").read_text())


def test_one_launcher_a_node_with_all_cores_of_its_task() -> None:
    assert OPTIONS["ntasks-per-node"] == "1"
    assert "cpus-per-task" in OPTIONS
    # srun has not taken it from sbatch since 22.05.
    assert any(word.startswith("--cpus-per-task=") for word in command("srun"))


def test_the_allocation_outlives_a_node_and_the_job_outlives_the_allocation() -> None:
    assert {"no-kill", "requeue"} <= OPTIONS.keys()
    assert OPTIONS["open-mode"] == "append", "what was logged before a requeue is kept"
    assert {"--no-kill", "--kill-on-bad-exit=0", "--wait=0"} <= set(command("srun"))


def test_a_warning_before_the_limit_goes_to_the_shell_that_waits_for_it() -> None:
    warning = re.fullmatch(r"B:(\w+)@(\d+)", OPTIONS["signal"])
    assert warning is not None
    assert f"trap warned {warning[1]}" in TEXT
    assert command("srun")[-1] == "&", "a shell hears no signal while a command of its own runs"


def test_only_what_was_asked_to_go_is_put_back_into_the_queue() -> None:
    asked = f'if [ "$code" -eq {EXIT_REQUEUE} ] && [ -z "$told" ]; then'
    assert TEXT.count("scontrol requeue") - TEXT.count("`scontrol requeue`") == 1
    assert TEXT.index(asked) < TEXT.rindex("scontrol requeue")
    assert f"# {EXIT_DO_NOT_REQUEUE}: the same failure came back" in TEXT
