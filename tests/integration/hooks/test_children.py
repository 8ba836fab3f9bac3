"""Who is the rank: one process per page, whatever else inherits its environment."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from typing import IO, cast

import pytest

from holdfast.contract import page
from holdfast.contract.page import Word

STUB = """
    import os, sys, time
    import torch
    from holdfast.rank import process
"""


def owner(stage) -> int:
    identity = page.parse_identity_zone(stage.read())
    assert identity is not None
    return identity.pid


def is_free(stage) -> bool:
    with (stage.pages / page.page_name(0, 0)).open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@pytest.mark.torch
def test_ranks_that_a_script_spawns_itself_have_no_hooks(stage) -> None:
    """As docs/configuration.md says."""
    ended = stage.run(
        """
        import os
        import torch.multiprocessing
        from holdfast.rank import process

        def train(rank):
            assert process.current() is None, rank

        if __name__ == "__main__":
            torch.multiprocessing.spawn(train, nprocs=2)
            assert process.current() is not None
            print(os.getpid())
        """
    )
    assert (ended.code, ended.err) == (0, "")
    assert stage.page_names() == [page.page_name(0, 0)]
    assert owner(stage) == int(ended.out)


@pytest.mark.torch
def test_dataloader_workers_forked_or_spawned_are_not_the_rank(stage) -> None:
    ended = stage.run(
        """
        import os
        import torch
        from torch.utils.data import DataLoader, Dataset
        from holdfast.contract import page
        from holdfast.rank import process

        class Probe(Dataset):
            def __len__(self):
                return 4

            def __getitem__(self, index):
                return torch.tensor([process.current() is None, os.getpid()])

        if __name__ == "__main__":
            process.current().set_word(page.Word.RESUMED_STEP, 5)
            for context in ("fork", "spawn"):
                loader = DataLoader(Probe(), 2, num_workers=2, multiprocessing_context=context)
                seen = torch.cat(list(loader))
                assert seen[:, 0].all() and os.getpid() not in seen[:, 1], context
            assert process.current().word(page.Word.RESUMED_STEP) == 5
            print(os.getpid())
        """
    )
    assert (ended.code, ended.err) == (0, "")
    assert stage.page_names() == [page.page_name(0, 0)]
    assert owner(stage) == int(ended.out)
    assert stage.word(Word.HOOK_ERRORS) == 0


def test_a_forked_child_that_outlives_its_rank_neither_holds_the_page_nor_writes_it(stage) -> None:
    process = stage.start(
        STUB
        + """
        recorder = process.current()
        recorder.end_step(1)
        if os.fork() == 0:
            recorder.end_step(99)
            sys.stdout.close()
            sys.stderr.close()
            os.close(1), os.close(2)
            time.sleep(60)
        print("ready", flush=True)
        time.sleep(60)
        """.replace("\n    ", "\n"),
        stage.environment(PYTHONPATH=stage.stub_torch()),
    )
    assert process.stdout.readline() == "ready\n"
    (child,) = _children(process.pid)
    assert not is_free(stage)
    process.kill()
    process.wait()
    try:
        stage.wait_until(lambda: is_free(stage))
        assert stage.word(Word.STEP) == 1
    finally:
        os.kill(child, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


def test_a_child_that_imports_torch_stays_inert_and_its_end_says_nothing(stage) -> None:
    ended = stage.run(
        STUB
        + """
        import subprocess
        code = "import torch; from holdfast.rank import process; print(process.current())"
        subprocess.run([sys.executable, "-c", code], check=True)
        if os.fork() == 0:
            raise ValueError("in the child")
        os.wait()
        print(process.current().word(14))
        """.replace("\n    ", "\n"),
        stage.environment(PYTHONPATH=stage.stub_torch()),
    )
    assert ended.out.splitlines() == ["None", "0"]
    assert "ValueError: in the child" in ended.err
    assert stage.last_words() == {}
    assert len(stage.page_names()) == 1


def test_of_several_pythons_in_a_wrapper_the_last_one_that_trains_is_the_rank(stage) -> None:
    env = stage.environment(PYTHONPATH=stage.stub_torch())
    for helper in ("import json", "import torch", "import torch"):
        assert stage.run(helper, env).code == 0
    ended = stage.run(STUB + "    process.current().end_step(1); print(os.getpid())", env)
    assert owner(stage) == int(ended.out)
    late = stage.run(STUB + "    print(process.current())", env)
    assert late.out == "None\n"
    assert owner(stage) == int(ended.out)


def test_a_python_that_never_imports_torch_claims_nothing(stage) -> None:
    assert stage.run("import json").code == 0
    assert stage.page_names() == []


def test_a_program_that_replaces_itself_is_still_the_rank(stage) -> None:
    env = stage.environment(PYTHONPATH=stage.stub_torch())
    ended = stage.run(
        STUB
        + """
        if len(sys.argv) == 1:
            os.execv(sys.executable, [sys.executable, sys.argv[0], "again"])
        print(process.current() is not None, os.getpid())
        """.replace("\n    ", "\n"),
        env,
    )
    assert ended.out == f"True {owner(stage)}\n"


def test_of_many_that_claim_at_once_exactly_one_gets_the_page(stage) -> None:
    script = """
        import sys
        from holdfast.rank.claim import claim
        from holdfast.contract.identity import read_identity
        from holdfast.contract.page import Identity

        me = read_identity()
        print("ready", flush=True)
        sys.stdin.readline()
        for attempt in range(40):
            identity = Identity(me.pid, me.start_ticks, attempt, 0, 0, 0, 1, 0, "n", "j")
            print(int(claim("pages", identity) is not None))
        sys.stdout.flush()
        sys.stdin.readline()
        """
    stage.script(script)
    import subprocess

    claimers = [
        subprocess.Popen(
            [sys.executable, "script.py"],
            cwd=stage.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(5)
    ]
    stage.started.extend(claimers)
    pipes = [(cast("IO[str]", one.stdin), cast("IO[str]", one.stdout)) for one in claimers]
    for _, said in pipes:
        assert said.readline() == "ready\n"
    for told, _ in pipes:
        told.write("go\n")
        told.flush()
    won = [[int(said.readline()) for _ in range(40)] for _, said in pipes]
    assert [sum(round_) for round_ in zip(*won, strict=True)] == [1] * 40
    assert len(stage.page_names()) == 40
