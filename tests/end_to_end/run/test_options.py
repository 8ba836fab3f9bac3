"""Every option of torchrun has its effect under `holdfast run`. Many share one launch."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.end_to_end.run.conftest import Ground

pytestmark = pytest.mark.torch


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


SPEAK = """
rank = os.environ["RANK"]
print(f"out of {rank} PICK\\nother line {rank}", flush=True)
print(f"err of {rank}", file=sys.stderr, flush=True)
"""


def test_names_ports_logs_and_filters(ground: Ground) -> None:
    """--nproc-per-node --role --rdzv-id --master-port --log-dir -r -t --local-ranks-filter
    --duplicate-stdout-filters --duplicate-stderr-filters --max-restarts --event-log-handler
    --monitor-interval, and the script's own arguments.
    """
    port = free_port()
    # fmt: off
    ran = ground.run(
        "--nproc-per-node=2", "--role=trainer", "--rdzv-id=myjob", f"--master-port={port}",
        "--log-dir=logs", "-r", "0:1,1:0", "-t", "0:0,1:3", "--local-ranks-filter=1",
        "--duplicate-stdout-filters=PICK", "--duplicate-stderr-filters=err", "--max-restarts=4",
        "--event-log-handler=console", "--monitor-interval=0.05",
        ground.script("speak.py", SPEAK), "--max-restarts=9", "x y",
    )
    # fmt: on
    assert ran.process.returncode == 0, ran.output
    for rank in (0, 1):
        facts = ran.facts(0, rank)
        env = facts["env"]
        assert facts["argv"] == ["speak.py", "--max-restarts=9", "x y"]
        assert (env["RANK"], env["LOCAL_RANK"]) == (str(rank), str(rank))
        assert (env["WORLD_SIZE"], env["LOCAL_WORLD_SIZE"]) == ("2", "2")
        assert (env["ROLE_NAME"], env["ROLE_RANK"], env["ROLE_WORLD_SIZE"]) == (
            "trainer",
            str(rank),
            "2",
        )
        assert (env["GROUP_RANK"], env["GROUP_WORLD_SIZE"]) == ("0", "1")
        assert env["TORCHELASTIC_RUN_ID"] == env["HOLDFAST_JOB"] == "myjob"
        assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("127.0.0.1", str(port))
        assert (env["TORCHELASTIC_MAX_RESTARTS"], env["TORCHELASTIC_RESTART_COUNT"]) == ("4", "0")
        assert env["TORCHELASTIC_USE_AGENT_STORE"] == "True"
    (logs,) = (ground.folder / "logs").glob("myjob_*/attempt_0")
    assert (logs / "0/stdout.log").read_text() == "out of 0 PICK\nother line 0\n"
    assert not (logs / "0/stderr.log").exists()
    assert "out of 1" in (logs / "1/stdout.log").read_text()
    assert (logs / "1/stderr.log").read_text() == "err of 1\n"
    assert "[trainer1]:out of 1 PICK" in ran.output
    assert "out of 0" not in ran.output
    assert "err of 0" not in ran.output
    # torch filters what is teed.
    assert (logs / "filtered_stdout.log").read_text() == "[trainer1]:out of 1 PICK\n"
    assert (logs / "filtered_stderr.log").read_text() == "[trainer1]:err of 1\n"
    assert '"name": "torchelastic.worker.status.SUCCEEDED"' in ran.output
    assert ground.left_in_shared_memory() == []


def test_a_module_environment_defaults_and_virtual_local_ranks(ground: Ground) -> None:
    """-m, PET_NPROC_PER_NODE, --virtual-local-rank, --local-addr."""
    ground.script("package/__init__.py", "")
    ground.script("package/work.py", "")
    (ground.folder / "package/__init__.py").write_text("")
    ran = ground.run(
        "--virtual-local-rank",
        "--local-addr=127.0.0.1",
        "-m",
        "package.work",
        "a",
        PET_NPROC_PER_NODE="2",
        CUDA_VISIBLE_DEVICES="4,7",
    )
    assert ran.process.returncode == 0, ran.output
    facts = ran.facts(0, 1)
    assert facts["argv"] == [str(ground.folder / "package/work.py"), "a"]
    assert facts["name"] == "__main__"
    assert (facts["env"]["LOCAL_RANK"], facts["env"]["CUDA_VISIBLE_DEVICES"]) == ("0", "7")


def test_a_program_that_is_no_python(ground: Ground) -> None:
    """--no-python."""
    ran = ground.run("--no-python", "/bin/sh", "-c", "echo shell $RANK $PYTHONPATH")
    assert ran.process.returncode == 0, ran.output
    assert "shell 0 " in ran.output


@pytest.mark.parametrize(
    ("method", "process"),
    [("spawn", "SpawnProcess"), ("fork", "ForkProcess"), ("forkserver", "ForkServerProcess")],
)
def test_a_script_run_by_path_in_torchs_own_process(
    ground: Ground, method: str, process: str
) -> None:
    """--run-path, --start-method."""
    body = "import multiprocessing\nprint('I am', multiprocessing.current_process().name)\n"
    script = str(ground.folder / ground.script("by_path.py", body))
    ran = ground.run("--run-path", f"--start-method={method}", "--nproc-per-node=2", script, "a")
    assert ran.process.returncode == 0, ran.output
    assert f"I am {process}" in ran.output
    assert ran.facts(0, 1)["argv"] == [script, "a"]


def test_standalone_ignores_what_names_a_rendezvous(ground: Ground) -> None:
    """--standalone."""
    ran = ground.run(
        "--standalone",
        "--rdzv-backend=c10d",
        "--rdzv-id=other",
        "--redis=redis://127.0.0.1:1",
        ground.script("alone.py", ""),
    )
    assert ran.process.returncode == 0, ran.output
    env = ran.environment(0, 0)
    assert env["TORCHELASTIC_RUN_ID"].startswith("alone-")


FAIL_TWICE = """
count = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
if count < 2:
    sys.exit(10 + count)
"""


@pytest.mark.parametrize(
    ("options", "code", "attempts"),
    [([], 0, 3), (["--max-restarts=1"], 1, 2), (["--max-restarts=0"], 1, 1)],
)
def test_restarts_are_the_policys_unless_capped(
    ground: Ground, options: list[str], code: int, attempts: int
) -> None:
    """--max-restarts; and --master-port, which every attempt needs anew."""
    ran = ground.run(f"--master-port={free_port()}", *options, ground.script("fail.py", FAIL_TWICE))
    assert ran.process.returncode == code, ran.output
    assert len(list((ground.folder / "out").iterdir())) == attempts
    if code:
        assert f"exitcode  : {9 + attempts} " in ran.output
        assert "restarts are used up" in ran.output


STUBBORN = """
import signal, time
def note(number, frame):
    with open(os.environ["OUT"] + f"/signal-{os.environ['RANK']}-{number}", "w"):
        pass
for number in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, note)
print("ready", flush=True)
is_first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
if os.environ["RANK"] == "0" and is_first and "FAIL" in os.environ:
    time.sleep(1)
    sys.exit(3)
end = time.time() + (60 if is_first else 0)
while time.time() < end:
    time.sleep(0.1)
"""


def test_the_shutdown_timeout_holds(ground: Ground) -> None:
    """--shutdown-timeout: a rank that ignores SIGTERM delays the restart by that, not by 30 s."""
    ran = ground.start(
        "--nproc-per-node=2", "--shutdown-timeout=2", ground.script("s.py", STUBBORN), FAIL="1"
    )
    assert ran.wait(45) == 0, ran.output
    assert "did not end within 2 s" in ran.output
    assert (ground.folder / "out/signal-1-15").exists()


def test_chosen_signals_are_forwarded(ground: Ground) -> None:
    """--signals-to-handle."""
    ran = ground.start(
        "--signals-to-handle=SIGUSR1", "--shutdown-timeout=1", ground.script("s.py", STUBBORN)
    )
    assert ran.process.stdout is not None
    while "ready" not in (line := ran.process.stdout.readline()):
        assert line, "ended early"
    os.kill(ran.process.pid, 10)
    assert ran.wait() == 1
    assert "received SIGUSR1" in ran.output
    assert (ground.folder / "out/signal-0-10").exists()
    assert ground.left_in_shared_memory() == []


def test_torchs_own_rendezvous_restarts_by_itself(ground: Ground) -> None:
    """--rdzv-backend=c10d, --rdzv-endpoint, --rdzv-conf."""
    ran = ground.run(
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint=127.0.0.1:{free_port()}",
        "--rdzv-id=stock",
        "--rdzv-conf=join_timeout=20",
        "--max-restarts=2",
        ground.script("fail.py", FAIL_TWICE),
    )
    assert ran.process.returncode == 0, ran.output
    assert sorted(p.name for p in (ground.folder / "out").iterdir()) == [
        "0-0.json",
        "1-0.json",
        "2-0.json",
    ]
    assert ran.environment(2, 0)["TORCHELASTIC_RESTART_COUNT"] == "2"
    assert ran.environment(0, 0)["TORCHELASTIC_RUN_ID"] == "stock"


def test_a_static_rendezvous_of_two_nodes(ground: Ground) -> None:
    """--rdzv-backend=static, --nnodes, --node-rank, --master-addr, --master-port."""
    port = free_port()
    script = ground.script("static.py", "")
    common = ["--rdzv-backend=static", "--nnodes=2", "--master-addr=127.0.0.1"]
    nodes = [
        ground.start(
            *common, f"--master-port={port}", f"--node-rank={rank}", f"--node=n{rank}", script
        )
        for rank in (0, 1)
    ]
    assert [node.wait() for node in nodes] == [0, 0], nodes[0].output + nodes[1].output
    for rank in (0, 1):
        env = nodes[0].environment(0, rank)
        assert (env["HOLDFAST_NODE"], env["GROUP_RANK"]) == (f"n{rank}", str(rank))
        assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("127.0.0.1", str(port))
