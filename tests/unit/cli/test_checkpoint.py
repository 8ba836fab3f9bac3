"""`holdfast checkpoint`: what it says, and its exit codes."""

import dataclasses
import json

import pytest
from click.testing import CliRunner
from tests.unit.checkpoints.sealed import fill, seal

from holdfast_sidecar.bad_input import BadInput
from holdfast_sidecar.cli.checkpoint import checkpoint
from holdfast_sidecar.cli.checkpoint.now import Outcome, look
from holdfast_sidecar.coordination.keys import Section
from holdfast_sidecar.coordination.reports import CheckpointOrder, LedgerEntry, Plan, encode
from holdfast_sidecar.coordination.store import Lease, View


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def run(*arguments):
        return CliRunner().invoke(checkpoint, arguments)

    return run


def test_the_list_says_what_a_restart_would_try_and_why_not_the_rest(run, tmp_path):
    root = tmp_path / "ck"
    seal(root, 10, "a")
    seal(root, 90, "b", parent="a")
    (seal(root, 50, "c", parent="a", attempt=1) / "poisoned-1.json").write_text("{}")
    fill(root, 70, "torn")
    result = run("list", "--dir", str(root))
    lines = {line.split()[-1].split("-")[-1]: line for line in result.output.splitlines()}
    assert lines["a"].split()[0] == "1"
    assert "complete" in lines["a"]
    assert "abandoned branch" in lines["b"]
    assert "poisoned" in lines["c"]
    assert "not sealed" in lines["torn"]


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
    assert result.exit_code == 0
    assert "step-00000010-ours" in result.stdout
    assert "step-00000020-forged" not in result.stdout
    key.unlink()
    assert "can't read checkpoint.key_file" in str(run(*arguments).exception)


@pytest.mark.parametrize("command", ["list", "verify"])
def test_storage_that_is_away_is_one_line(run, tmp_path, monkeypatch, command):
    def away(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("holdfast_sidecar.cli.checkpoint.storage.read_ledger", away)
    told = run(command, "--dir", str(tmp_path)).exception
    assert isinstance(told, BadInput)
    assert "Input/output error" in str(told)


def view(order=None, request=True, plan="running", leader="a"):
    sections = {Section.PLAN: {"current": encode(Plan(0, 1, plan))}}
    if order is not None:
        sections[Section.CHECKPOINT] = {"current": encode(order)}
    if request:
        sections[Section.REQUESTS] = {"r1": "{}"}
    return View(Lease(1, leader), "s", sections)


def order(state, asked_by="r1", reason=""):
    return CheckpointOrder("aa", 0, 1, 7, "/ck/x", state, 60.0, asked_by, reason)


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        (view(), "waiting for all ranks"),
        (view(leader=""), "nobody leads"),
        (view(order("armed")), "saving at step 7"),
        (view(order("armed", asked_by="")), "waiting for all ranks"),
        (view(order("void", reason="rank 1: missed")), "again: rank 1: missed"),
    ],
)
def test_it_tells_how_far_the_request_is(seen, told):
    assert str(look(seen, "r1")).startswith(told)


@pytest.mark.parametrize(
    ("seen", "outcome"),
    [
        (view(order("complete"), request=False), Outcome(True, "aa", 7, "/ck/x")),
        (view(order("void", reason="why"), request=False), Outcome(False, "aa", 7, reason="why")),
        (view(plan="done"), Outcome(False, reason="the job has ended")),
        (view(request=False), Outcome(False, reason="the request was dropped")),
    ],
)
def test_it_knows_when_the_request_is_over(seen, outcome):
    assert look(seen, "r1") == outcome


def test_a_request_met_is_still_known_when_the_next_scheduled_order_took_its_place():
    entry = LedgerEntry("aa", "/ck/x", 7, 0, 1, "", "complete", 1, 2, 0.0, requested_by="r1")
    later = dataclasses.replace(order("armed", asked_by=""), identifier="bb", step=47)
    seen = view(later, request=False)
    seen = dataclasses.replace(
        seen, sections={**seen.sections, Section.LEDGER: {"aa": encode(entry)}}
    )
    assert look(seen, "r1") == Outcome(True, "aa", 7, "/ck/x")
