import json

from tests.integration.cli.test_stop import begin, when_asked
from tests.unit.checkpoints.sealed import seal

from holdfast_sidecar.coordination.keys import Section
from holdfast_sidecar.coordination.reports import CheckpointOrder, LedgerEntry


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
