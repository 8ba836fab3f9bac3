"""Which processes are ranks, and what the launcher hands them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.contract import environment
from holdfast.rank import attachment

RANK = {environment.PAGE_DIR: "/x", "LOCAL_RANK": "0"}


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, True),
        ({environment.HOOKS: "1"}, True),
        ({environment.HOOKS: "0"}, False),
        ({environment.PAGE_DIR: ""}, False),
        ({"LOCAL_RANK": ""}, False),
        ({"LOCAL_RANK": "", "RANK": "3"}, False),
        ({"LOCAL_RANK": "", "RANK": "3", environment.ATTACH: "1"}, True),
        ({environment.CLAIMED: f"{os.getppid()}:5"}, False),
        ({environment.CLAIMED: f"{os.getpid()}:5"}, True),
    ],
)
def test_only_a_rank_whose_page_no_ancestor_claimed_attaches(
    changes: dict[str, str], wanted: bool
) -> None:
    assert attachment.is_wanted({**RANK, **changes}) is wanted


def test_the_directory_for_the_path_holds_a_sitecustomize_and_nothing_else() -> None:
    directory = Path(environment.python_path())
    assert [path.name for path in directory.glob("*.py")] == ["sitecustomize.py"]


def test_the_users_own_path_is_kept_behind_ours() -> None:
    ours = environment.python_path()
    assert attachment.worker_environment({}) == {"PYTHONPATH": ours}
    assert attachment.worker_environment({"PYTHONPATH": "/a:/b"}) == {"PYTHONPATH": f"{ours}:/a:/b"}
