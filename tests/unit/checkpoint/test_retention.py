"""What is removed, and what never is."""

import json
import os

from tests.unit.checkpoint.sealed import JOB, fill, seal

from holdfast.contract.storage import LocalFolder
from holdfast_sidecar.checkpoint.ledger import abandoned, read_ledger, remove, superfluous


def names(root, keep, older_than_s=0.0, now=0.0):
    gone = superfluous(read_ledger(str(root), JOB), keep, older_than_s, now)
    return [removal.kept.identifier for removal in gone]


def line(root, *steps):
    parent = ""
    for step in steps:
        seal(root, step, f"s{step}", parent=parent)
        parent = f"s{step}"


def test_all_but_the_newest_few_go_oldest_first(tmp_path):
    line(tmp_path, 10, 20, 30, 40)
    assert names(tmp_path, 2) == ["s10", "s20"]


def test_the_newest_stays_even_when_none_is_to_be_kept(tmp_path):
    line(tmp_path, 10, 20)
    assert names(tmp_path, 0) == ["s10"]


def test_what_can_not_be_resumed_from_does_not_count(tmp_path):
    line(tmp_path, 10, 20, 30)
    (next(tmp_path.glob("*s30")) / "poisoned-1.json").write_text("{}")
    assert names(tmp_path, 2) == []


def test_nothing_goes_when_nothing_could_be_resumed_from(tmp_path):
    line(tmp_path, 10, 20)
    for directory in tmp_path.iterdir():
        (directory / "poisoned-1.json").write_text("{}")
    assert names(tmp_path, 1) == []


def test_an_abandoned_branch_goes_once_it_is_older_than_what_is_kept(tmp_path):
    line(tmp_path, 10, 20)
    seal(tmp_path, 15, "c", parent="s10", attempt=1)
    assert names(tmp_path, 2) == []
    assert names(tmp_path, 1) == ["s10", "s20"]


def test_removing_takes_the_manifest_first_and_the_mark_last(tmp_path, monkeypatch):
    directory = seal(tmp_path, 10, "a")
    unlink = os.unlink
    gone: list[str] = []

    def breaks_off(name, **where):
        if len(gone) == 2:
            raise OSError("busy")
        unlink(name, **where)
        gone.append(name)

    monkeypatch.setattr(os, "unlink", breaks_off)
    assert remove([LocalFolder(directory)], JOB) == []
    assert gone[0] == "manifest.json"
    assert read_ledger(str(tmp_path), JOB) == []
    monkeypatch.undo()
    assert remove([LocalFolder(directory)], JOB) != []
    assert not directory.exists()


def test_a_torn_directory_goes_only_when_an_earlier_attempt_of_this_job_left_it(tmp_path):
    def torn(identifier, job, attempt):
        directory = fill(tmp_path, 10, identifier, job=job, attempt=attempt)
        account = {
            "rank": 0,
            "step": 10,
            "world_size": 2,
            "job": job,
            "attempt": attempt,
            "finite": True,
            "torch": "2",
            "ancestors": [],
            "position": {},
            "random_state": True,
        }
        (directory / "__0_account.json").write_text(json.dumps(account))
        return LocalFolder(directory)

    earlier = torn("earlier", JOB, 1)
    now = torn("now", JOB, 2)
    other = torn("other", "other", 0)
    silent = LocalFolder(fill(tmp_path, 10, "silent"))
    written = max(silent.modified_unix_s(name) for name in silent.names())
    everything = [earlier, now, other, silent]
    assert abandoned(everything, JOB, 2, written + 60) == [earlier, silent]
    later = torn("later", JOB, 9)  # attempts count anew, or this leader is not the newest
    everything.append(later)
    assert abandoned(everything, JOB, 2, written + 60) == [earlier, silent]
    assert abandoned(everything, JOB, 2, written + 25 * 3600) == [earlier, silent, later]


def test_the_newest_good_one_stays_however_old(tmp_path):
    line(tmp_path, 10, 20, 30, 40)
    for step in (10, 20):
        (next(tmp_path.glob(f"*s{step}")) / "good-1.json").write_text("{}")
    assert names(tmp_path, 2) == ["s10"]


def test_by_age_all_may_go_but_the_newest_and_the_newest_good_one(tmp_path):
    line(tmp_path, 10, 20, 30, 40)
    (next(tmp_path.glob("*s20")) / "good-1.json").write_text("{}")
    assert names(tmp_path, 9, older_than_s=5.0, now=36.0) == ["s10", "s30"]
    assert names(tmp_path, 9, older_than_s=0.0, now=1e9) == []


def test_every_removal_has_a_reason(tmp_path):
    line(tmp_path, 20, 30, 40)
    seal(tmp_path, 15, "branch", parent="s20")
    (seal(tmp_path, 5, "bad", parent="") / "poisoned-1.json").write_text('{"reason": "why"}')
    gone = superfluous(read_ledger(str(tmp_path), JOB), 1)
    assert {removal.kept.identifier: removal.why for removal in gone} == {
        "bad": "why",
        "branch": "it is on an abandoned branch",
        "s20": "a newer one is kept",
        "s30": "a newer one is kept",
    }
