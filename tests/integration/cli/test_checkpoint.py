import dataclasses
import json

import pytest
from tests.integration.cli.test_stop import begin, when_asked
from tests.object_store import ObjectStore
from tests.unit.checkpoint.sealed import seal

from holdfast_sidecar.config.settings import CheckpointSettings
from holdfast_sidecar.records.checkpoint import CheckpointOrder, LedgerEntry, SnapshotOrder
from holdfast_sidecar.store.protocol import Section


def saved(request, state="complete", reason=""):
    return CheckpointOrder("id", 1, 1, 60, "/ck/x", state, 9.0, request.identifier, reason)


def test_a_checkpoint_is_asked_for_and_waited_for(job, run):
    begin(job)

    def save(request):
        assert request.kind == "checkpoint"
        job.write(Section.CHECKPOINT, "current", saved(request))
        job.store.report(Section.REQUESTS, request.identifier, None)

    when_asked(job, save)
    result = run("checkpoint", "now")
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[-1] == "checkpoint id at step 60: /ck/x"


def test_one_that_comes_to_nothing_is_exit_code_1_with_the_reason(job, run):
    begin(job)

    def refuse(request):
        job.write(Section.CHECKPOINT, "current", saved(request, "void", "rank 1: failed"))
        job.store.report(Section.REQUESTS, request.identifier, None)

    when_asked(job, refuse)
    result = run("checkpoint", "now", "--json")
    assert result.exit_code == 1
    assert json.loads(result.output)["reason"] == "rank 1: failed"


def test_nobody_waits_for_ever(job, run):
    begin(job)
    result = run("checkpoint", "now", "--timeout", "0.2")
    assert result.exit_code == 1
    assert "not within 200 ms" in result.output


def test_the_list_finds_where_the_job_saves(job, run, tmp_path):
    begin(job)
    path = seal(tmp_path / "ck", 10, "a", job="chargpt")
    entry = LedgerEntry("a", str(path), 10, 0, 1, "", "complete", 1, 2, 1.0)
    job.write(Section.LEDGER, "a", entry)
    result = run("checkpoint", "list")
    assert result.exit_code == 0, result.output
    assert path.name in result.output


def led_with(job, **settings):
    """A job whose leader says how it saves."""
    begin(job)
    job.nodes[0] = dataclasses.replace(job.nodes[0], checkpoint=CheckpointSettings(**settings))
    job.write(Section.NODES, "a", job.nodes[0])


def test_the_plan_is_that_of_the_job_and_not_of_this_shell(job, run, tmp_path):
    led_with(job, dir=str(tmp_path / "ck"), every_s=42.0)
    job.write(Section.SNAPSHOT, "current", SnapshotOrder(1, 1, 5))
    entry = LedgerEntry("a", "/ck/a", 10, 1, 1, "", "complete", 1, 4, 1.0, blocked_s=2, write_s=30)
    job.write(Section.LEDGER, "a", entry)
    result = run("checkpoint", "plan")
    assert result.exit_code == 0, result.output
    told = result.output.splitlines()
    assert told[0] == "job chargpt: a checkpoint every 42.0 s"
    assert "measured    a checkpoint keeps the loop 2.0 s and is written in 30.0 s" in told
    assert "taken       42.0 s: as checkpoint.every_s says" in told
    assert any(line.startswith("a rank") and "every 5 steps" in line for line in told)
    prospect = json.loads(run("checkpoint", "plan", "--json").output)["prospect"]
    assert prospect["lost_s"] == 42 / 2 + 30
    assert prospect["lost_with_snapshots_s"] == pytest.approx(5 * 0.04 / 2)


def test_a_job_that_has_saved_nothing_yet_still_says_where_it_will(job, run, tmp_path):
    (tmp_path / "ck").mkdir()
    led_with(job, dir=str(tmp_path / "ck"))
    assert run("checkpoint", "list").output == f"no checkpoint in {tmp_path / 'ck'}\n"


def test_a_job_that_saves_nowhere_is_told_as_such(job, run):
    led_with(job)
    result = run("checkpoint", "list")
    assert result.exit_code == 2
    assert "saves nowhere: it was started without --checkpoint-dir" in result.output
    assert "no checkpoints: checkpoint.dir is not set" in run("checkpoint", "plan").output


def test_checkpoints_behind_a_url_are_listed_verified_and_pruned(
    run, home, tmp_path, object_store: ObjectStore
):
    for step, identifier, parent in ((10, "a", ""), (20, "b", "a"), (30, "c", "b")):
        path = seal(tmp_path / "here", step, identifier, parent=parent)
        for file in path.iterdir():
            key = f"run/{path.name}/{file.name}"
            object_store.client().upload_file(str(file), "checkpoints", key)
    url = f"{object_store.url}/run"
    listed = json.loads(run("checkpoint", "list", "--dir", url, "--json").output)
    assert [(c["identifier"], c["resume"]) for c in listed["checkpoints"]] == [
        ("c", 1),
        ("b", 2),
        ("a", 3),
    ]
    assert run("checkpoint", "verify", "--dir", url).exit_code == 0
    damaged = {"Bucket": "checkpoints", "Key": "run/step-00000030-c/__0_own.pt"}
    object_store.client().put_object(**damaged, Body=b"C of 0")
    verified = run("checkpoint", "verify", "--dir", url, "30")
    assert verified.exit_code == 1
    assert "__0_own.pt: its bytes have changed" in verified.output
    assert run("checkpoint", "prune", "--dir", url, "--keep", "2", "--yes").exit_code == 0
    left = object_store.client().list_objects_v2(Bucket="checkpoints", Prefix="run/")["Contents"]
    assert {entry["Key"].split("/")[1] for entry in left} == {
        "step-00000020-b",
        "step-00000030-c",
    }
