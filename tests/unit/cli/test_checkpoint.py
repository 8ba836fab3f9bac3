"""`holdfast checkpoint`: what it says, and its exit codes."""

import json

import pytest
from click.testing import CliRunner
from tests.unit.checkpoint.sealed import fill, seal

from holdfast_sidecar.cli import checkpoint_inspect
from holdfast_sidecar.cli.checkpoint import checkpoint
from holdfast_sidecar.cli.find_job import NoSuchJob
from holdfast_sidecar.config.settings import BadInput


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def run(*arguments):
        return CliRunner().invoke(checkpoint, arguments)

    return run


def poison(directory, reason="it could not be loaded"):
    (directory / "poisoned-1.json").write_text(json.dumps({"reason": reason}))


def test_the_list_says_what_a_restart_would_try_and_why_not_the_rest(run, tmp_path):
    root = tmp_path / "ck"
    seal(root, 10, "a")
    seal(root, 90, "b", parent="a")
    poison(seal(root, 50, "c", parent="a", attempt=1))
    fill(root, 70, "torn")
    lines = run("list", "--dir", str(root)).output.splitlines()
    told = {line.split()[-1].split("-")[-1]: line.split() for line in lines}
    assert told["a"][:4] == ["*-'", "10", "1", "complete"]
    assert told["c"][:3] == ["*", "50", "poisoned:"]
    assert told["b"][:6] == ["|", "o", "90", "complete,", "on", "an"]
    assert lines[-1] == "not sealed (torn, or being written now): step-00000070-torn"


def test_the_list_is_rebuilt_from_storage_alone_with_verdicts(run, tmp_path):
    root = tmp_path / "ck"
    (seal(root, 10, "a", trigger="manual") / "good-1.json").write_text("{}")
    seal(root, 20, "b", parent="a", is_finite=False)
    (seal(root, 30, "c", parent="b") / "__1_own.pt").unlink()
    found = json.loads(run("list", "--dir", str(root), "--json").output)["checkpoints"]
    told = {c["identifier"]: (c["verdict"], c["resume"], c["why_not"]) for c in found}
    assert told == {
        "a": ("good", 1, ""),
        "b": ("complete", None, "its numbers are not finite"),
        "c": ("complete", None, "files are missing or cut off"),
    }
    assert found[-1]["trigger"] == "manual"


def test_jobs_that_save_in_one_place_are_told_apart(run, tmp_path):
    root = tmp_path / "ck"
    seal(root, 10, "a", job="one")
    seal(root, 90, "b", job="two", attempt=3)
    found = json.loads(run("list", "--dir", str(root), "--json").output)["checkpoints"]
    assert {(c["job"], c["identifier"], c["resume"]) for c in found} == {
        ("one", "a", 1),
        ("two", "b", 1),
    }
    assert "job two\n" in run("list", "--dir", str(root)).output
    told = run("prune", "--dir", str(root), "--yes").exception
    assert str(told) == f"several jobs save in {root}, name one with --job: one, two"


def test_show_tells_all_about_one(run, tmp_path):
    root = tmp_path / "ck"
    seal(root, 10, "a")
    seal(root, 20, "b", parent="a", blocked_s=0.5, write_s=4.0, position={"epoch": 1, "taken": 7})
    told = run("show", "20", "--dir", str(root)).output
    for line in (
        "step-00000020-b: complete",
        "goes back to step 10, a",
        "took        500 ms of the slowest loop, 4.0 s to write and hash",
        "ranks       2: 0 to 1 on a",
        "data        7 batches into pass 1 over the data",
        "numbers     all finite",
    ):
        assert line in told.splitlines()
    assert "__1_own.pt" in told
    document = json.loads(run("show", "a", "--dir", str(root), "--json").output)
    assert (document["step"], document["resume"], len(document["files"])) == (10, 2, 3)
    assert run("show", "--dir", str(root)).output.startswith("step-00000020-b")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("19", "did you mean 20 or 10?"),
        ("step-00000010-aaaa", "did you mean step-00000010-aaaaaa"),
        ("bbbbbb", "is no checkpoint to go by: it was not sealed with this job's key"),
        ("30", "may mean several checkpoints"),
        ("40", "is no checkpoint to go by: it was never sealed"),
    ],
)
def test_a_name_that_fits_none_or_several_is_one_helpful_line(run, tmp_path, name, told):
    root, key = tmp_path / "ck", tmp_path / "key"
    key.write_text("secret")
    for step, identifier in ((10, "aaaaaa"), (20, "c"), (30, "d"), (30, "e")):
        seal(root, step, identifier, key=b"secret")
    seal(root, 25, "bbbbbb")
    fill(root, 40, "f")
    set_key = f"checkpoint.key_file={key}"
    result = run("show", name, "--dir", str(root), "--set", set_key)
    assert isinstance(result.exception, BadInput)
    assert told in str(result.exception)


def test_another_jobs_checkpoint_is_told_as_such(run, tmp_path):
    root = tmp_path / "ck"
    seal(root, 10, "a", job="one")
    told = str(run("show", "10", "--dir", str(root), "--job", "two").exception)
    assert told == f"step-00000010-a in {root} is no checkpoint to go by: it is job one's"
    listed = run("list", "--dir", str(root), "--job", "two").output
    assert listed == f"no checkpoint in {root} but those of job one\n"


def test_prune_shows_what_goes_and_removes_nothing_unasked(run, tmp_path):
    root = tmp_path / "ck"
    parent = ""
    for step in (10, 20, 30, 40):
        seal(root, step, f"s{step}", parent=parent)
        parent = f"s{step}"
    dry = run("prune", "--dir", str(root), "--keep", "2", "--dry-run")
    assert dry.exit_code == 0
    assert "2 newer ones are kept" in dry.output
    assert run("prune", "--dir", str(root), "--keep", "2").exit_code == 1, "nobody said yes"
    told = json.loads(run("prune", "--dir", str(root), "--keep", "2", "--json").output)
    assert [one["identifier"] for one in told["superfluous"]] == ["s10", "s20"]
    assert told["removed"] == []
    assert len(list(root.iterdir())) == 4
    done = run("prune", "--dir", str(root), "--keep", "2", "--yes")
    assert done.exit_code == 0, done.output
    assert sorted(path.name[-3:] for path in root.iterdir()) == ["s30", "s40"]
    assert run("prune", "--dir", str(root), "--keep", "2", "--yes").exit_code == 0


def test_prune_by_age_keeps_the_newest_and_the_newest_good_one(run, tmp_path):
    root = tmp_path / "ck"
    seal(root, 5, "dull")
    (seal(root, 10, "good", parent="dull") / "good-1.json").write_text("{}")
    seal(root, 20, "dull2", parent="good", ancestors=["good", "dull"])
    seal(root, 30, "last", parent="dull2", ancestors=["dull2", "good", "dull"])
    done = run("prune", "--dir", str(root), "--keep", "9", "--older-than", "1d", "--yes")
    assert done.exit_code == 0, done.output
    assert sorted(path.name.split("-")[-1] for path in root.iterdir()) == ["good", "last"]
    found = json.loads(run("list", "--dir", str(root), "--json").output)["checkpoints"]
    assert [(c["identifier"], c["resume"]) for c in found] == [("last", 1), ("good", 2)]


def test_prune_asks_the_job_that_saves_there_what_it_may_be_loading(run, tmp_path, monkeypatch):
    asked = []

    def find(effective, job):
        asked.append(job)
        raise NoSuchJob("it has ended")

    monkeypatch.setattr(checkpoint_inspect, "find_job", find)
    seal(tmp_path / "ck", 10, "a", job="one")
    assert run("prune", "--dir", str(tmp_path / "ck"), "--dry-run").exit_code == 0
    assert asked == ["one"]


def test_one_that_can_not_be_removed_is_told_with_exit_code_1(run, tmp_path):
    root = tmp_path / "ck"
    seal(root, 10, "a")
    seal(root, 20, "b", parent="a")

    (root / "step-00000010-a" / "notes.txt").write_text("mine")
    result = run("prune", "--dir", str(root), "--keep", "1", "--yes")
    assert result.exit_code == 1
    assert "step-00000010-a could not be removed" in result.output


def test_the_list_for_scripts_is_json(run, tmp_path):
    seal(tmp_path / "ck", 10, "a")
    found = json.loads(run("list", "--dir", str(tmp_path / "ck"), "--json").output)
    assert [(c["identifier"], c["resume"]) for c in found["checkpoints"]] == [("a", 1)]


def test_verify_reads_every_byte_and_fails_on_one(run, tmp_path):
    root = tmp_path / "ck"
    seal(root, 10, "a")
    path = seal(root, 20, "b", parent="a") / "__0_own.pt"
    assert run("verify", "--dir", str(root)).exit_code == 0
    path.write_bytes(b"c" + path.read_bytes()[1:])
    result = run("verify", "--dir", str(root))
    assert result.exit_code == 1
    assert "__0_own.pt: its bytes have changed" in result.output
    assert run("verify", "--dir", str(root), "10").exit_code == 0
    faults = json.loads(run("verify", "--dir", str(root), "--json", "b").output)
    assert list(faults) == ["b"]


@pytest.mark.parametrize("damage", ["__0_own.pt", "manifest.json"])
def test_verify_fails_on_the_newest_though_a_restart_would_pass_it_over(run, tmp_path, damage):
    root = tmp_path / "ck"
    seal(root, 10, "a")
    path = seal(root, 20, "b", parent="a") / damage
    if damage == "manifest.json":
        path.write_bytes(b"")
    else:
        path.unlink()
    result = run("verify", "--dir", str(root))
    assert result.exit_code == 1
    told = {line.partition(" ")[0].rstrip(":"): line for line in result.output.splitlines()}
    assert "whole" in told["step-00000010-a"]
    assert ("missing" if damage == "__0_own.pt" else "is empty") in told["step-00000020-b"]
    found = json.loads(run("verify", "--dir", str(root), "--json").output)
    assert sorted(bool(one["faults"]) for one in found.values()) == [False, True]


@pytest.mark.parametrize("arguments", [("verify", "99"), ("list", "--dir", "nowhere"), ("list",)])
def test_what_is_not_there_is_bad_input(run, tmp_path, arguments):
    seal(tmp_path / "ck", 10, "a")
    given = () if len(arguments) != 2 else ("--dir", str(tmp_path / "ck"))
    assert isinstance(run(*arguments, *given).exception, BadInput)


@pytest.mark.parametrize("command", ["list", "verify"])
def test_only_what_was_sealed_with_the_key_is_a_checkpoint(run, tmp_path, command):
    root, key = tmp_path / "ck", tmp_path / "key"
    seal(root, 10, "ours", key=b"secret")
    seal(root, 20, "forged", parent="ours")
    key.write_text("secret\n")
    arguments = (command, "--dir", str(root), "--set", f"checkpoint.key_file={key}")
    result = run(*arguments)
    assert result.exit_code == (0 if command == "list" else 1)
    assert "step-00000010-ours" in result.stdout
    told = [line for line in result.stdout.splitlines() if "forged" in line]
    assert told == [
        "not believed: step-00000020-forged (it was not sealed with this job's key)"
        if command == "list"
        else "step-00000020-forged: it was not sealed with this job's key"
    ]
    key.unlink()
    assert "can't read checkpoint.key_file" in str(run(*arguments).exception)


@pytest.mark.parametrize("command", ["list", "verify"])
def test_storage_that_is_away_is_one_line(run, tmp_path, monkeypatch, command):
    def away(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("holdfast_sidecar.cli.checkpoint_lookup.read_ledger", away)
    told = run(command, "--dir", str(tmp_path)).exception
    assert isinstance(told, BadInput)
    assert "Input/output error" in str(told)


@pytest.mark.parametrize("command", [("list",), ("show", "10"), ("verify",)])
def test_the_checkpoints_of_an_unknown_job_are_those_of_no_job(run, command):
    told = run(*command, "--job", "nosuch")
    assert told.exit_code == 3
    assert "no job 'nosuch' of yours runs here" in told.output
    assert "with --dir" in told.output
    assert isinstance(run(*command).exception, BadInput)
