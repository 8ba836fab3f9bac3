"""Jobs of several nodes on this machine, whose ranks, launchers and servers are treated badly.

Ranks import no torch here: what is tested is who starts, ends and restarts them.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from holdfast_sidecar.policy.cluster import parse_cluster

if TYPE_CHECKING:
    from tests.end_to_end.run.conftest import Ground, Launched
    from tests.servers import Server

pytestmark = pytest.mark.torch

PATIENCE_S = 60.0

WORK = """
import time
def said(name):
    return os.path.exists(os.path.join(os.environ["OUT"], name))
end = time.time() + 120
while time.time() < end and not said("finish"):
    if said(f"fail-{attempt}-{rank}"):
        os._exit(7)
    time.sleep(0.02)
"""
"""A rank that works until told to fail, or to finish."""


PRINTS = """
import time, torch
for step in range(3000):
    print("step", step, flush=True)
    time.sleep(0.02)
"""


def job(ground: Ground, server: Server, *options: str) -> Callable[[str], Launched]:
    """Start a node of one job by its name."""
    script = ground.script("work.py", WORK)

    def node(name: str) -> Launched:
        return ground.start(
            f"--redis={server.settings.url}", "--job=j", f"--node={name}", *options, script
        )

    return node


def await_ranks(ground: Ground, attempt: int, count: int) -> dict[int, dict[str, str]]:
    """Environments of the ranks of this attempt, once so many have started."""
    import json

    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        found = list((ground.folder / "out").glob(f"{attempt}-*.json"))
        texts = [path.read_text() for path in found]
        if len(found) == count and all(text.endswith("}") for text in texts):
            facts = [json.loads(text) for text in texts]
            return {int(f["env"]["RANK"]): f["env"] | {"pid": str(f["pid"])} for f in facts}
        time.sleep(0.02)
    raise AssertionError(f"{count} ranks of attempt {attempt} never started")


def tell(ground: Ground, word: str) -> None:
    (ground.folder / "out" / word).touch()


def finish(ground: Ground, *nodes: Launched) -> None:
    tell(ground, "finish")
    codes = [node.wait() for node in nodes]
    assert codes == [0] * len(nodes), "\n".join(node.output for node in nodes)


def await_exit(pid: int, timeout_s: float = 20.0) -> None:
    """Wait until a process that need not be ours has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([handle], [], [], timeout_s)[0], f"{pid} is still there"
    finally:
        os.close(handle)


def await_that(is_so: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.05)


def test_a_failed_rank_restarts_all_ranks_under_their_numbers(
    ground: Ground, server: Server
) -> None:
    node = job(ground, server, "--nnodes=2", "--nproc-per-node=2")
    a, b = node("a"), node("b")
    first = await_ranks(ground, 0, 4)
    tell(ground, "fail-0-3")
    second = await_ranks(ground, 1, 4)
    for rank in range(4):
        assert first[rank]["HOLDFAST_NODE"] == second[rank]["HOLDFAST_NODE"] == "aabb"[rank]
        assert second[rank]["TORCHELASTIC_RESTART_COUNT"] == "1"
        await_exit(int(first[rank]["pid"]), 0)
    assert len({env["MASTER_PORT"] for env in first.values()}) == 1
    assert first[0]["MASTER_PORT"] != second[0]["MASTER_PORT"]
    # Ctrl-C everywhere: nothing is to blame for that, least of all what the job had got over.
    for launched in (a, b):
        launched.process.send_signal(signal.SIGINT)
    assert [launched.wait() for launched in (a, b)] == [1, 1]
    assert not any("FAILED" in launched.output for launched in (a, b)), a.output + b.output
    known = parse_cluster(server.store("j").read()).incidents.values()
    assert {one.decided for one in known if one.attempt == 1} <= {"stop"}, known
    assert ground.left_in_shared_memory() == []


def test_a_spare_takes_over_from_a_killed_node_and_no_orphan_is_left(
    ground: Ground, server: Server
) -> None:
    node = job(ground, server, "--nnodes=2", "--spares=1")
    a, b = node("a"), node("b")
    first = await_ranks(ground, 0, 2)
    spare = node("c")
    sidecar = sidecar_of(ground, "b")
    b.process.kill()
    await_exit(int(first[1]["pid"]), 5)
    second = await_ranks(ground, 1, 2)
    assert [second[rank]["HOLDFAST_NODE"] for rank in (0, 1)] == ["a", "c"]
    await_exit(sidecar)
    finish(ground, a, spare)
    assert ground.left_in_shared_memory() == []


def test_a_job_shrinks_when_the_minimum_is_still_there(ground: Ground, server: Server) -> None:
    node = job(ground, server, "--nnodes=1:2")
    a, b = node("a"), node("b")
    await_ranks(ground, 0, 2)
    b.process.kill()
    second = await_ranks(ground, 1, 1)
    assert (second[0]["HOLDFAST_NODE"], second[0]["WORLD_SIZE"]) == ("a", "1")
    finish(ground, a)


def test_without_redis_survivors_run_on_and_the_restart_follows_its_return(
    ground: Ground, server: Server
) -> None:
    node = job(ground, server, "--nnodes=2")
    a, b = node("a"), node("b")
    first = await_ranks(ground, 0, 2)
    server.kill()
    tell(ground, "fail-0-1")
    await_exit(int(first[1]["pid"]))
    await_that(lambda: is_missed(ground), "a sidecar misses Redis")
    assert psutil.pid_exists(int(first[0]["pid"]))
    assert a.process.poll() is None
    server.start()
    second = await_ranks(ground, 1, 2)
    assert [second[rank]["HOLDFAST_NODE"] for rank in (0, 1)] == ["a", "b"]
    finish(ground, a, b)


def test_a_frozen_or_emptied_redis_ends_nothing(ground: Ground, server: Server) -> None:
    node = job(ground, server, "--nnodes=2")
    a, b = node("a"), node("b")
    first = await_ranks(ground, 0, 2)
    os.kill(server.pid, signal.SIGSTOP)
    await_that(lambda: is_missed(ground), "a sidecar misses Redis")
    os.kill(server.pid, signal.SIGCONT)
    server.client().flushall()
    tell(ground, "fail-0-0")
    second = await_ranks(ground, 1, 2)
    assert int(second[0]["HOLDFAST_EPOCH"]) >= int(first[0]["HOLDFAST_EPOCH"])
    finish(ground, a, b)
    assert list((ground.folder / "out").glob("2-*")) == []


def test_a_signal_to_the_launcher_ends_its_node(ground: Ground) -> None:
    script = ground.script("work.py", WORK)
    alone = ground.start("--nproc-per-node=2", script)
    ranks = await_ranks(ground, 0, 2)
    alone.process.send_signal(signal.SIGTERM)
    assert alone.wait() == 1
    assert "received SIGTERM" in alone.output
    for env in ranks.values():
        await_exit(int(env["pid"]), 0)
    assert ground.left_in_shared_memory() == []


def test_ctrl_c_while_torch_is_imported_is_no_traceback(ground: Ground) -> None:
    torch = ground.folder / "stub" / "torch" / "__init__.py"
    torch.parent.mkdir(parents=True)
    torch.write_text(
        "import os, time\nopen(os.environ['OUT'] + '/importing', 'w').close()\ntime.sleep(60)\n"
    )
    # Who runs the tests in the background ignores the signal, and what is started would, too.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        script = ground.script("work.py", WORK)
        begun = ground.start(script, PYTHONPATH=str(torch.parents[1]))
    finally:
        signal.signal(signal.SIGINT, before)
    await_that((ground.folder / "out" / "importing").exists, "torch is imported")
    begun.process.send_signal(signal.SIGINT)
    assert begun.wait() == -signal.SIGINT
    assert begun.output == ""


def test_a_killed_launcher_takes_ranks_server_and_at_last_the_sidecar_with_it(
    ground: Ground,
) -> None:
    script = ground.script("work.py", WORK)
    alone = ground.start("--job=j", "--node=a", script)
    ranks = await_ranks(ground, 0, 1)
    children = psutil.Process(alone.process.pid).children(recursive=True)
    assert len(children) >= 3
    alone.process.kill()
    await_exit(int(ranks[0]["pid"]), 5)
    for child in children:
        await_exit(child.pid)
    await_that(lambda: ground.left_in_shared_memory() == [], "the sidecar sweeps")


def test_a_killed_sidecar_and_a_killed_redis_cost_the_job_nothing_and_come_back(
    ground: Ground,
) -> None:
    """The rank dies while its launcher's own Redis is away, and is replaced when it is back."""
    script = ground.script("work.py", WORK)
    alone = ground.start("--job=j", "--node=a", script)
    await_ranks(ground, 0, 1)
    before = sidecar_of(ground, "a")
    os.kill(before, signal.SIGKILL)
    await_that(lambda: sidecar_of(ground, "a") != before, "another sidecar")
    own_redis(alone).kill()
    tell(ground, "fail-0-0")
    await_ranks(ground, 1, 1)
    finish(ground, alone)
    assert "this job's own Redis was ended by SIGKILL and runs again, empty" in alone.output


def test_jobs_and_nodes_share_a_machine(ground: Ground, server: Server) -> None:
    script = ground.script("work.py", WORK)
    common = [f"--redis={server.settings.url}", "--nnodes=2", "--job=pair"]
    nodes = [ground.start(*common, script) for _ in range(2)]
    ranks = await_ranks(ground, 0, 2)
    names = {env["HOLDFAST_NODE"] for env in ranks.values()}
    assert len(names) == 2
    other = ground.run("--job=other", ground.script("short.py", ""))
    assert other.process.returncode == 0, other.output
    finish(ground, *nodes)


def test_a_job_name_in_use_with_other_settings_is_refused(ground: Ground, server: Server) -> None:
    node = job(ground, server)
    a = node("a")
    await_ranks(ground, 0, 1)
    other = ground.run(
        f"--redis={server.settings.url}", "--job=j", "--node=b", ground.script("x.py", "")
    )
    assert other.process.returncode == 2
    assert "job 'j' is running with other settings" in other.output
    finish(ground, a)


def test_an_ended_jobs_name_is_free_for_nodes_that_start_together_with_other_options(
    ground: Ground, server: Server
) -> None:
    common = [f"--redis={server.settings.url}", "--job=j"]
    script = ground.script("short.py", "")
    before = [ground.start(*common, "--nnodes=1:2", f"--node={name}", script) for name in "ab"]
    assert [node.wait() for node in before] == [0, 0], "\n".join(node.output for node in before)
    after = [ground.start(*common, "--nnodes=2", f"--node={name}", script) for name in "ab"]
    assert [node.wait() for node in after] == [0, 0], "\n".join(node.output for node in after)


def test_too_few_nodes_by_the_deadline_is_exit_code_2(ground: Ground, server: Server) -> None:
    node = job(ground, server, "--nnodes=2", "--rdzv-conf=join_timeout=3")
    alone = node("a")
    assert alone.wait() == 2
    assert "1 of the 2 nodes that --nnodes needs joined job j within 3 s" in alone.output
    assert ground.left_in_shared_memory() == []


def test_an_exception_of_the_same_kind_again_stops_the_job(ground: Ground) -> None:
    """torch's summary, one line, and the code that says: do not requeue. Both times are packed."""
    body = "import torch\nraise ValueError('bad data')\n"
    ran = ground.run(ground.script("bug.py", body))
    assert ran.process.returncode == 65, ran.output
    assert list((ground.folder / "tmp").glob("torchelastic_*")) == [], "torch's log directory"
    assert "holdfast: the same failure 2 times: ValueError: bad data" in ran.output
    assert "bug.py FAILED" in ran.output
    assert "error_file: <N/A>" in ran.output, "it is gone with that directory"
    assert "ValueError: bad data" in ran.output.partition("bug.py FAILED")[2]
    packed = list((ground.folder / "state").glob("*/*/incidents/*.tar.gz"))
    assert len(packed) == 2
    for archive in packed:
        with tarfile.open(archive) as tar:
            told = tar.extractfile(f"{archive.name.removesuffix('.tar.gz')}/first-error.json")
            assert told is not None
            (first,) = json.loads(told.read())["order"]
        assert (first["rank"], first["words"]) == (0, "ValueError: bad data")


def own_redis(launched: Launched) -> psutil.Process:
    """The server that this launcher started."""
    children = psutil.Process(launched.process.pid).children()
    (found,) = [child for child in children if child.name() in ("valkey-server", "redis-server")]
    return found


UNLIKE = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
for count in (4, 4 + 4 * dist.get_rank()):
    dist.all_reduce(torch.ones(count))
"""


def test_ranks_that_differ_in_a_collective_again_stop_the_job_though_gloo_aborts_them(
    ground: Ground,
) -> None:
    """An abort leaves no words, and whoever lost a peer for it says so first or not."""
    ran = ground.run("--nproc-per-node=2", ground.script("unlike.py", UNLIKE))
    assert ran.process.returncode == 65, ran.output
    assert "the same failure 2 times: ended by SIGABRT at step 0" in ran.output


def sidecar_of(ground: Ground, node: str) -> int:
    path = ground.folder / "state/j" / node / "sidecar.json"
    await_that(path.exists, f"a sidecar on {node}")
    return int(json.loads(path.read_text())["pid"])


def is_missed(ground: Ground) -> bool:
    """Whether a sidecar that had reached Redis says it no longer does."""
    return any("is away" in log(ground, node) for node in ("a", "b"))


def log(ground: Ground, node: str) -> str:
    path: Path = ground.folder / "state/j" / node / "sidecar.log"
    return path.read_text() if path.exists() else ""


def test_an_abort_after_a_rank_said_it_had_finished_is_forgiven(ground: Ground) -> None:
    """torch's own abort at exit, when a process group is destroyed under a living DDP object."""
    late = "import atexit\natexit.register(os.abort)  # runs after the hooks' own\nimport torch\n"
    ran = ground.run("--max-restarts=0", ground.script("abort.py", late))
    assert ran.process.returncode == 0, ran.output
    early = "import torch\nos.abort()\n"
    ran = ground.run("--max-restarts=0", ground.script("abort_early.py", early))
    assert ran.process.returncode == 1
    assert "SIGABRT" in ran.output


@pytest.mark.parametrize("takes_errors", [False, True])
def test_who_has_nobody_left_to_print_to_is_not_started_again(
    ground: Ground, takes_errors: bool
) -> None:
    """As after `| head`, or once the `tee` at the end of the line was killed."""
    ground.script("prints.py", PRINTS)
    errors = ground.folder / "errors"
    with errors.open("w") as said:
        launch = subprocess.Popen(
            [sys.executable, "-m", "holdfast_sidecar.cli.main", "run", "prints.py"],
            cwd=ground.folder,
            env=ground.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if takes_errors else said,
            text=True,
        )
        assert launch.stdout is not None
        lines = 0
        while lines < 3:
            lines += launch.stdout.readline().startswith("step ")
        launch.stdout.close()
        assert launch.wait(PATIENCE_S) == 1
    assert sorted(path.name for path in (ground.folder / "out").iterdir()) == ["0-0.json"]
    if not takes_errors:
        assert "nobody reads what this launch prints any more" in errors.read_text()
