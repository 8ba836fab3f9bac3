"""Which checkpoint a restart tries first, from storage alone."""

import errno
import os
from pathlib import Path

import pytest
from tests.unit.checkpoint.sealed import JOB, fill, seal

from holdfast_sidecar.checkpoint.ledger import (
    call_good,
    candidates,
    note_failed_load,
    other_owners,
    poison,
    read_ledger,
    torn_folders,
)


def steps(root, job=JOB):
    return [c.step for c in candidates(read_ledger(str(root), job))]


def test_the_newest_comes_first_and_its_ancestors_follow(tmp_path):
    seal(tmp_path, 10, "a")
    seal(tmp_path, 20, "b", parent="a")
    seal(tmp_path, 30, "c", parent="b")
    assert steps(tmp_path) == [30, 20, 10]


def test_a_directory_without_a_manifest_is_no_candidate(tmp_path):
    seal(tmp_path, 10, "a")
    torn = fill(tmp_path, 20, "b")
    assert steps(tmp_path) == [10]
    assert [f.url for f in torn_folders(str(tmp_path))] == [str(torn)]


def test_an_abandoned_branch_is_never_chosen_however_high_its_step(tmp_path):
    seal(tmp_path, 10, "a")
    seal(tmp_path, 90, "b", parent="a")
    seal(tmp_path, 50, "c", parent="a", attempt=1)  # attempt 1 walked back to a
    assert steps(tmp_path) == [50, 10]


def test_a_poisoned_newest_still_tells_which_branch_is_the_living_one(tmp_path):
    seal(tmp_path, 10, "a")
    seal(tmp_path, 90, "b", parent="a")
    bad = seal(tmp_path, 50, "c", parent="a", attempt=1)
    (bad / "poisoned-1.json").write_text("{}")
    assert steps(tmp_path) == [10]


def test_a_file_that_is_missing_or_cut_leaves_its_checkpoint_out(tmp_path):
    seal(tmp_path, 10, "a")
    (seal(tmp_path, 20, "b", parent="a") / "__1_own.pt").write_bytes(b"")
    (seal(tmp_path, 30, "c", parent="b") / ".metadata").unlink()
    assert steps(tmp_path) == [10]


def test_numbers_that_are_not_finite_are_nothing_to_resume_from(tmp_path):
    seal(tmp_path, 10, "a")
    seal(tmp_path, 20, "b", parent="a", is_finite=False)
    assert steps(tmp_path) == [10]


def test_another_job_in_the_same_directory_is_left_alone(tmp_path):
    seal(tmp_path, 10, "a")
    seal(tmp_path, 99, "x", job="other")
    assert steps(tmp_path) == [10]
    assert steps(tmp_path, "other") == [99]


def test_a_directory_of_other_jobs_alone_is_told(tmp_path):
    assert other_owners(str(tmp_path / "nothing"), JOB) == []
    seal(tmp_path, 10, "x", job="other")
    fill(tmp_path, 20, "torn")
    assert other_owners(str(tmp_path), JOB) == ["other"]
    seal(tmp_path, 30, "a")
    assert other_owners(str(tmp_path), JOB) == []


def test_attempts_that_count_anew_do_not_hide_what_they_saved(tmp_path):
    seal(tmp_path, 700, "old", attempt=7)
    seal(tmp_path, 800, "new", parent="old", attempt=0)
    assert steps(tmp_path) == [800, 700]


def test_a_parent_that_was_removed_ends_the_line(tmp_path):
    seal(tmp_path, 20, "b", parent="gone")
    seal(tmp_path, 30, "c", parent="b")
    assert steps(tmp_path) == [30, 20]


def test_a_circle_of_parents_ends_too(tmp_path):
    seal(tmp_path, 10, "a", parent="b")
    seal(tmp_path, 20, "b", parent="a")
    assert sorted(steps(tmp_path)) == [10, 20]


def test_failing_to_load_in_enough_attempts_poisons_and_is_remembered_on_storage(tmp_path):
    seal(tmp_path, 10, "a")
    (kept,) = read_ledger(str(tmp_path), JOB)
    once = note_failed_load(kept, attempt=3, limit=2)
    assert note_failed_load(once, attempt=3, limit=2).failed_attempts == {3}
    assert not once.is_poisoned
    (kept,) = read_ledger(str(tmp_path), JOB)  # another leader, who knows only the files
    assert kept.failed_attempts == {3}
    twice = note_failed_load(kept, attempt=4, limit=2)
    assert twice.is_poisoned
    assert twice.entry().verdict == "poisoned"
    assert twice.entry().load_failures == 2
    assert steps(tmp_path) == []


def test_verdicts_are_only_ever_added(tmp_path):
    directory = seal(tmp_path, 10, "a")
    (kept,) = read_ledger(str(tmp_path), JOB)
    for attempt in range(3):
        kept = note_failed_load(kept, attempt, limit=99)
    assert sorted(p.name for p in directory.glob("unloaded-*")) == [
        f"unloaded-{n}.json" for n in (1, 2, 3)
    ]


@pytest.mark.parametrize(("where", "spoilt"), [(os, "open"), (Path, "stat")])
def test_storage_that_is_away_is_not_taken_for_empty(tmp_path, monkeypatch, where, spoilt):
    seal(tmp_path, 5, "aa")
    whole = getattr(where, spoilt)

    def fails(path, *args, **named):
        if Path(path).name in ("manifest.json", "__0_own.pt"):
            raise OSError(errno.EIO, "Input/output error")
        return whole(path, *args, **named)

    monkeypatch.setattr(where, spoilt, fails)
    with pytest.raises(OSError, match="Input/output"):
        read_ledger(str(tmp_path), JOB)


def test_a_manifest_that_is_not_believed_is_told(tmp_path, caplog):
    seal(tmp_path, 5, "aa", key=b"another")
    fill(tmp_path, 7, "bb")
    assert read_ledger(str(tmp_path), JOB, b"key") == []
    assert [record.getMessage() for record in caplog.records] == [
        "step-00000005-aa is not believed to be a checkpoint: it was not sealed with this job's key"
    ]


def test_a_directory_that_does_not_exist_holds_nothing(tmp_path):
    assert read_ledger(str(tmp_path / "none"), JOB) == []


def kept(root):
    return {one.identifier: one for one in read_ledger(str(root), JOB)}


def test_a_verdict_is_a_file_beside_the_manifest_and_said_once(tmp_path):
    seal(tmp_path, 10, "a")
    assert kept(tmp_path)["a"].verdict == "complete"
    for _ in range(2):
        call_good(kept(tmp_path)["a"], "it ran on")
    assert kept(tmp_path)["a"].verdict == "good"
    assert [candidate.is_good for candidate in candidates(kept(tmp_path).values())] == [True]
    for _ in range(2):
        poison(kept(tmp_path)["a"], "its numbers led nowhere")
    assert kept(tmp_path)["a"].verdict == "poisoned", "what is known later counts more"
    assert kept(tmp_path)["a"].poisoned_for == "its numbers led nowhere"
    verdicts = [path.name for path in tmp_path.glob("*/*-[0-9].json")]
    assert sorted(verdicts) == ["good-1.json", "poisoned-1.json"]


def test_one_that_is_poisoned_is_not_called_good_any_more(tmp_path):
    (seal(tmp_path, 10, "a") / "poisoned-1.json").write_text("{}")
    assert call_good(kept(tmp_path)["a"], "it ran on").verdict == "poisoned"
    assert not list(tmp_path.glob("*/good-*"))


def test_a_line_goes_on_behind_a_checkpoint_that_was_removed(tmp_path):
    seal(tmp_path, 10, "good")
    seal(tmp_path, 30, "c", parent="removed", ancestors=["removed", "good"])
    assert steps(tmp_path) == [30, 10]


def test_behind_such_a_gap_the_newest_is_still_the_one_that_goes_back_to_it(tmp_path):
    """Attempts that count anew: the later checkpoint has the lower number."""
    seal(tmp_path, 90, "old", attempt=7)
    seal(tmp_path, 30, "new", parent="removed", ancestors=["removed", "old"])
    assert steps(tmp_path) == [30, 90]
