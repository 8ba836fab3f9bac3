"""The sitecustomize that attaches: it hides nobody's own and never stands in the way."""

from __future__ import annotations

import os
import shutil

import pytest

from holdfast.contract import environment, page
from holdfast.contract.page import Ending, Flag, Word


def path(stage, name: str, file: str, text: str) -> str:
    folder = stage.folder / name
    folder.mkdir()
    target = folder / file
    target.parent.mkdir(exist_ok=True)
    target.write_text(text)
    return str(folder)


def test_the_users_own_sitecustomize_still_runs_and_goes_by_its_name(stage) -> None:
    own = path(stage, "own", "sitecustomize.py", "print('own')\nanswer = 42\n")
    pythonpath = os.pathsep.join([stage.stub_torch(), own])
    script = "import torch, sitecustomize\nprint(sitecustomize.answer)\n"
    ended = stage.run(script, stage.environment(PYTHONPATH=pythonpath))
    assert (ended.code, ended.out) == (0, "own\n42\n")
    assert stage.ending() is Ending.FINISHED


@pytest.mark.parametrize("is_a_copy", [False, True])
def test_two_paths_to_the_hooks_install_them_once(stage, is_a_copy: bool) -> None:
    other = stage.folder / "other"
    if is_a_copy:
        shutil.copytree(environment.python_path(), other)
    else:
        other.symlink_to(environment.python_path())
    script = """
    from torch.optim import optimizer as hooks
    import torch
    print(len(hooks._global_optimizer_pre_hooks))
    print("holdfast" in torch.autograd.backward.__wrapped__.__code__.co_filename)
    """
    env = stage.environment(PYTHONPATH=os.pathsep.join([environment.python_path(), str(other)]))
    ended = stage.run(script, env)
    assert (ended.code, ended.out, ended.err) == (0, "1\nFalse\n", "")


def test_a_broken_sitecustomize_of_the_user_is_told_as_ever_and_stops_nothing(stage) -> None:
    own = path(stage, "own", "sitecustomize.py", "1 / 0\n")
    pythonpath = os.pathsep.join([stage.stub_torch(), own])
    ended = stage.run("import torch\nprint('runs')", stage.environment(PYTHONPATH=pythonpath))
    assert ended.out == "runs\n"
    assert "ZeroDivisionError" in ended.err
    assert stage.ending() is Ending.FINISHED


def test_a_python_without_holdfast_says_so_in_one_line_and_runs(stage) -> None:
    absent = path(stage, "absent", "holdfast/__init__.py", "raise ImportError('not here')\n")
    pythonpath = os.pathsep.join([environment.python_path(), absent])
    ended = stage.run("print('runs')", stage.environment(PYTHONPATH=pythonpath))
    assert ended.out == "runs\n"
    assert ended.err.splitlines() == ["holdfast: this Python runs without hooks: not here"]


def test_a_python_without_holdfast_that_a_rank_starts_is_silent(stage) -> None:
    absent = path(stage, "absent", "holdfast/__init__.py", "raise ImportError('not here')\n")
    pythonpath = os.pathsep.join([environment.python_path(), absent])
    ended = stage.run("", stage.environment(PYTHONPATH=pythonpath, HOLDFAST_CLAIMED="1:1"))
    assert (ended.code, ended.err) == (0, "")


def test_a_directory_that_is_not_safe_costs_one_line_and_no_page(stage) -> None:
    stage.pages.chmod(0o755)
    env = stage.environment(PYTHONPATH=stage.stub_torch())
    ended = stage.run("import torch\nprint('runs')", env)
    assert ended.out == "runs\n"
    (line,) = ended.err.splitlines()
    assert "0700" in line
    assert stage.page_names() == []


def test_the_start_of_an_interpreter_imports_nothing_of_weight(stage) -> None:
    script = "import sys; print(*sorted(name for name in sys.modules if 'holdfast' in name))"
    ended = stage.run(script)
    assert ended.out.split() == [
        "holdfast",
        "holdfast.contract",
        "holdfast.contract.environment",
        "holdfast.contract.foreign_launch",
        "holdfast.contract.own_directory",
        "holdfast.rank",
        "holdfast.rank.attachment",
        "holdfast.rank.exit_code",
        "holdfast.rank.importing",
    ]


def test_a_warm_interpreter_attaches_when_it_is_told_to(stage) -> None:
    """It imported torch before anyone knew which rank it would be."""
    env = {
        key: value
        for key, value in stage.environment(PYTHONPATH=stage.stub_torch()).items()
        if "HOLDFAST" not in key
    }
    ended = stage.run(
        f"""
        import os, torch
        from holdfast.rank import attachment, process
        assert process.current() is None
        attachment.arm()
        assert process.current() is None
        os.environ.update(HOLDFAST_PAGE_DIR={str(stage.pages)!r}, HOLDFAST_ATTEMPT="4")
        attachment.arm()
        process.current().end_step(1)
        """,
        env,
    )
    assert ended.code == 0, ended.err
    (name,) = stage.page_names()
    assert name == "attempt-4-local-0.page"
    assert page.parse_words(stage.read(attempt=4))[Word.ENDING] == Ending.FINISHED
    assert page.parse_words(stage.read(attempt=4))[Word.FLAGS] & Flag.TORCH_IMPORTED
