from __future__ import annotations

from holdfast.rank.early_environment import is_changed

INITIAL = b"OMP_NUM_THREADS=1\0HOME=/root\0LC_CTYPE=C\0"


def test_an_unchanged_environment_and_unrelated_changes_are_no_reason() -> None:
    assert not is_changed(INITIAL, {"OMP_NUM_THREADS": "1", "HOME": "/", "WANDB_MODE": "offline"})


def test_a_variable_of_torchs_libraries_that_was_set_changed_or_removed_is() -> None:
    assert is_changed(INITIAL, {"OMP_NUM_THREADS": "2"})
    assert is_changed(INITIAL, {})
    assert is_changed(INITIAL, {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"})
