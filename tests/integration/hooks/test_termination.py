"""SIGTERM to real ranks: survived where they can be saved, and by their workers; else by nobody."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest
from tests.integration.hooks.conftest import Stage

from holdfast.contract import environment
from holdfast.contract.page import END_SIGNAL, Flag, Word
from holdfast.rank.termination import AGAIN_NS

pytestmark = pytest.mark.torch

ATTACHED = """
    import os, signal, subprocess, sys, time
    import torch
    import holdfast

    def wait_for(name):
        while not os.path.exists(name):
            time.sleep(0.01)

    def attach():
        return holdfast.attach(model=torch.nn.Linear(2, 2))
"""


def held(stage: Stage) -> dict[str, str]:
    return stage.environment() | {environment.HOLDS_TERMINATION: "1"}


def start(stage, text: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    rank: subprocess.Popen[str] = stage.start(ATTACHED + text, env or held(stage))
    stage.wait_until(lambda: (stage.folder / "ready").exists() or rank.poll() is not None)
    assert rank.poll() is None, rank.communicate()
    return rank


def holds(stage) -> bool:
    return bool(stage.word(Word.FLAGS) & Flag.HOLDS_TERMINATION)


WAIT = """
    attach()
    open("ready", "w").close()
    wait_for("go")
"""


def test_a_rank_that_can_be_saved_notes_sigterm_and_lives_on(stage) -> None:
    rank = start(stage, WAIT)
    assert holds(stage)
    before_ns = time.monotonic_ns()
    rank.send_signal(signal.SIGTERM)
    rank.send_signal(signal.SIGTERM)
    stage.wait_until(lambda: stage.word(Word.TERMINATION_NS) > 0)
    assert stage.word(Word.TERMINATION_NS) >= before_ns
    (stage.folder / "go").touch()
    assert stage.end(rank).code == 0


def test_sigterm_long_after_the_first_ends_the_rank(stage) -> None:
    rank = start(stage, WAIT)
    rank.send_signal(signal.SIGTERM)
    stage.wait_until(lambda: stage.word(Word.TERMINATION_NS) > 0)
    stage.wait_until(lambda: time.monotonic_ns() > stage.word(Word.TERMINATION_NS) + AGAIN_NS)
    rank.send_signal(signal.SIGTERM)
    assert stage.end(rank).code == -signal.SIGTERM


def test_the_end_signal_ends_a_rank_that_is_in_c_code(stage) -> None:
    rank = start(
        stage,
        """
    import ctypes
    attach()
    open("ready", "w").close()
    # Holds the GIL, and begins again when a signal interrupts it.
    ctypes.PyDLL(None).read(os.pipe()[0], ctypes.create_string_buffer(1), 1)
    """,
    )
    rank.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        rank.wait(0.3)
    rank.send_signal(END_SIGNAL)
    assert rank.wait(5) == -END_SIGNAL


def test_an_orphan_dies_of_sigterm(stage) -> None:
    rank = start(
        stage,
        """
    attach()
    handler = signal.getsignal(signal.SIGTERM)
    handler._parent += 1  # as if the launcher had died since
    open("ready", "w").close()
    wait_for("go")
    """,
    )
    rank.send_signal(signal.SIGTERM)
    assert stage.end(rank).code == -signal.SIGTERM


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_handler_of_the_scripts_own_stays_in_force(stage, moment: str) -> None:
    own = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))"
    first, then = (own, "") if moment == "before" else ("", own)
    rank = start(
        stage,
        f"""
    {first}
    job = attach()
    {then}
    job.steps(range(3))
    open("ready", "w").close()
    wait_for("go")
    """,
    )
    assert not holds(stage)
    rank.send_signal(signal.SIGTERM)
    assert stage.end(rank).code == 9


@pytest.mark.parametrize(
    ("text", "changes"),
    [("attach()", {}), ("", {environment.HOLDS_TERMINATION: "1"})],
    ids=["nobody who would end it otherwise", "nothing to save"],
)
def test_otherwise_sigterm_ends_a_rank_as_ever(stage, text: str, changes: dict[str, str]) -> None:
    rank = start(
        stage,
        f"""
    {text}
    open("ready", "w").close()
    wait_for("go")
    """,
        stage.environment(**changes),
    )
    rank.send_signal(signal.SIGTERM)
    assert stage.end(rank).code == -signal.SIGTERM


def test_what_a_rank_forks_or_starts_dies_of_sigterm(stage) -> None:
    ended = stage.run(
        ATTACHED
        + """
    import multiprocessing

    attach()
    forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=[60])
    forked.start()
    forked.terminate()
    forked.join(5)
    started = subprocess.Popen(["sleep", "60"])
    started.terminate()
    print(forked.exitcode, started.wait(5))
    """,
        held(stage),
    )
    assert ended.out.split() == ["-15", "-15"], ended


def test_a_child_dies_of_a_sigterm_that_comes_as_soon_as_it_is_forked(stage) -> None:
    ended = stage.run(
        ATTACHED
        + """
    attach()

    def fork_and_end():
        child = os.fork()
        if not child:
            time.sleep(1)
            os._exit(7)
        os.kill(child, signal.SIGTERM)
        return child

    children = [fork_and_end() for _ in range(100)]
    codes = {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children}
    print(codes, signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, []))
    """,
        held(stage),
    )
    assert ended.out == "{-15} False\n", ended


LOADER = """
    from torch.utils.data import DataLoader, Dataset

    class Pids(Dataset):
        def __len__(self):
            return 100

        def __getitem__(self, index):
            return os.getpid()

    def inited(worker):
        open(f"inited-{worker}", "w").close()

    if __name__ == "__main__":
        attach()
        loader = DataLoader(
            Pids(), 1, num_workers=2, multiprocessing_context=METHOD, worker_init_fn=inited,
            persistent_workers=True,
        )
        batches = iter(loader)
        pids = {int(next(batches)) for _ in range(8)}
        assert loader.worker_init_fn is inited
        with open("pids", "w") as file:
            print(*pids, file=file)
        open("ready", "w").close()
        wait_for("go")
        assert {int(next(batches)) for _ in range(50)} == pids
        # What an iterator waits for a worker that won't end: longer than the test does.
        torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL = 300
"""


@pytest.mark.parametrize(
    ("method", "ending"),
    [("fork", ""), ("spawn", ""), ("forkserver", ""), ("fork", "del batches; print('alive')")],
    ids=["fork", "spawn", "fork server", "shut down"],
)
def test_dataloader_workers_survive_it_too_and_end_with_their_rank(
    stage, method: str, ending: str
) -> None:
    text = LOADER.replace("METHOD", repr(method)) + f"        {ending}\n"
    rank = start(stage, text)
    workers = [int(pid) for pid in (stage.folder / "pids").read_text().split()]
    assert len(workers) == 2
    assert sorted(path.name for path in stage.folder.glob("inited-*")) == ["inited-0", "inited-1"]
    for pid in [rank.pid, *workers, *fork_servers(rank.pid)]:
        os.kill(pid, signal.SIGTERM)
    stage.wait_until(lambda: stage.word(Word.TERMINATION_NS) > 0)
    (stage.folder / "go").touch()
    ended = stage.end(rank)
    assert (ended.code, ended.err) == (0, "")
    for pid in workers:
        stage.wait_until(lambda pid=pid: not os.path.exists(f"/proc/{pid}"))


def fork_servers(rank: int) -> list[int]:
    found = subprocess.run(
        ["pgrep", "-P", str(rank), "-f", "multiprocessing.forkserver"],
        capture_output=True,
        text=True,
        check=False,
    )
    return [int(pid) for pid in found.stdout.split()]


def test_what_a_worker_starts_dies_of_sigterm(stage) -> None:
    ended = stage.run(
        ATTACHED
        + """
    from torch.utils.data import DataLoader, Dataset

    class Starts(Dataset):
        def __len__(self):
            return 1

        def __getitem__(self, index):
            started = subprocess.Popen(["sleep", "60"])
            started.terminate()
            return started.wait(5)

    attach()
    print(next(iter(DataLoader(Starts(), num_workers=1, multiprocessing_context="fork"))).item())
    """,
        held(stage),
    )
    assert ended.out.split() == ["-15"], ended


def test_workers_are_left_alone_where_the_rank_dies_of_it(stage) -> None:
    ended = stage.run(
        ATTACHED
        + """
    from torch.utils.data import DataLoader

    loader = DataLoader(range(9), num_workers=1, multiprocessing_context="fork")
    batches = iter(loader)
    next(batches)
    worker = batches._workers[0]
    worker.terminate()
    worker.join(5)
    print(worker.exitcode, "terminate" in vars(worker._popen))
    """,
        stage.environment(),
    )
    assert ended.out.split() == ["0", "False"], ended
