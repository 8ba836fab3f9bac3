import dataclasses
import threading
import time
from collections.abc import Callable

import pytest

from holdfast_sidecar.cli.job import without_saving
from holdfast_sidecar.config.settings import CheckpointSettings
from holdfast_sidecar.records.checkpoint import CheckpointOrder, LedgerEntry, SnapshotReport
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.plan import Incident, Member, PauseWindow, Plan, Quarantine, Request
from holdfast_sidecar.store.protocol import Section

OUTSIDE = Quarantine("m", "b", 0.0, 2e9, ["3 failures within 24 h are blamed on it"])


def begin(job):
    job.leave_record()
    job.add_node("a", 0)
    job.add_node("b", 1)
    job.plan()
    job.lead()


def requests(job):
    found = job.store.read().section(Section.REQUESTS).values()
    return [request for text in found if (request := decode(Request, text)) is not None]


@pytest.fixture
def leader(job):
    """Answers each request with what a test wants done about it."""
    answers: dict[str, Callable[[Request], object]] = {}
    seen: list[Request] = []
    ended = threading.Event()

    def lead():
        while not ended.wait(0.02):
            for request in requests(job):
                if not request.refused and request.identifier not in [r.identifier for r in seen]:
                    seen.append(request)
                    answers[request.kind](request)

    thread = threading.Thread(target=lead, daemon=True)
    thread.start()
    yield answers, seen
    ended.set()
    thread.join()


def forget(job, request):
    job.store.report(Section.REQUESTS, request.identifier, None)


def test_pause_waits_until_the_plan_says_so_and_resume_until_it_does_not(job, run, leader):
    begin(job)
    answers, seen = leader

    def pause(request):
        until = time.time() + request.for_s
        job.plan(pause=PauseWindow(request.by, request.reason, time.time(), until))
        forget(job, request)

    def resume(request):
        job.plan()
        forget(job, request)

    answers |= {"pause": pause, "resume": resume}
    result = run("pause", "--job=chargpt", "--for", "30m", "--reason", "new switch")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("job chargpt is paused for 30 min, until ")
    assert (seen[0].for_s, seen[0].reason) == (1800.0, "new switch")
    job.live()
    status = run("status")
    assert f"paused      by {seen[0].by}, for another 30 min: new switch" in status.output
    result = run("resume")
    assert (result.exit_code, result.stdout) == (0, "job chargpt: nothing is paused any more\n")
    assert "paused" not in run("status").output


def test_a_pause_of_no_length_is_exit_2(run):
    result = run("pause", "--job=chargpt", "--for", "0")
    assert result.exit_code == 2
    assert "a pause must have a length" in result.output


def test_what_nobody_answers_is_taken_back(job, run, monkeypatch):
    monkeypatch.setattr("holdfast_sidecar.cli.job.PATIENCE_S", 0.3)
    begin(job)
    result = run("pause", "--job=chargpt")
    assert result.exit_code == 1
    assert "was not paused: not within 300 ms (last: waiting for the leader)" in result.output
    assert requests(job) == []


@pytest.mark.parametrize("command", ["pause", "resume", "restart"])
def test_a_job_that_has_ended_is_not_asked(job, run, command):
    begin(job)
    job.plan(state="done")
    result = run(command)
    assert result.exit_code == 1
    assert "has ended: done" in result.output
    assert requests(job) == []


def test_a_node_that_is_kept_outside_is_shown_and_let_in(job, run, leader):
    begin(job)
    job.plan(outside=[OUTSIDE], members=job_members("a"))
    job.live()
    shown = run("status").output
    assert "kept out    b, for another" in shown
    assert "3 failures within 24 h are blamed on it (holdfast node return b)" in shown
    result = run("resume", "--node", "c")
    assert result.exit_code == 1
    assert "node c is not kept outside (kept outside: b)" in result.output
    answers, seen = leader

    def resume(request):
        job.plan(members=job_members("a"))
        forget(job, request)

    answers["resume"] = resume
    result = run("resume", "--node", "b")
    assert (result.exit_code, result.stdout) == (0, "job chargpt: node b may come in again\n")
    assert seen[0].node == "b"


def job_members(*nodes):
    return [Member(node, "i", rank, 2 * rank, 2) for rank, node in enumerate(nodes)]


def test_restart_saves_first_and_waits_until_the_ranks_step_again(job, run, leader):
    begin(job)
    answers, seen = leader

    def save(request):
        order = CheckpointOrder("id", 1, 1, 60, "/ck/step-60", "complete", 9.0, request.identifier)
        job.write(Section.CHECKPOINT, "current", order)
        forget(job, request)

    def restart(request):
        incident = Incident(
            request.identifier, 1, "restart", detected_unix_s=100.0, decided="restart"
        )
        job.write(Section.INCIDENTS, request.identifier, incident)
        forget(job, request)
        job.plan(attempt=2)
        stepping = dataclasses.replace(incident, recovered_unix_s=104.0, step_resumed=60)
        job.write(Section.INCIDENTS, request.identifier, stepping)

    answers |= {"checkpoint": save, "restart": restart}
    result = run("restart", "--job=chargpt", "--reason", "new data")
    assert result.exit_code == 0, result.output
    assert "saved at step 60: /ck/step-60" in result.output
    assert result.output.splitlines()[-1] == (
        "job chargpt: attempt 2 runs, from step 60, after 4.0 s"
    )
    assert [(request.kind, request.reason) for request in seen] == [
        ("checkpoint", ""),
        ("restart", "new data"),
    ]


def test_a_job_that_can_t_be_saved_is_not_restarted(job, run, leader):
    begin(job)
    answers, seen = leader

    def refuse(request):
        order = CheckpointOrder("id", 1, 1, 0, "", "void", 0.0, request.identifier, "no directory")
        job.write(Section.CHECKPOINT, "current", order)
        forget(job, request)

    answers["checkpoint"] = refuse
    result = run("restart", "--job=chargpt")
    assert result.exit_code == 1
    assert "was not restarted: there is no checkpoint: no directory" in result.output
    assert [request.kind for request in seen] == ["checkpoint"]


@pytest.mark.parametrize(
    ("snapshot", "origin"),
    [
        (None, "from nothing"),
        (SnapshotReport(1, slots=2, held={"0": [40], "1": [40]}), "from nothing"),
    ],
    ids=["nothing in memory", "one node's part in memory"],
)
def test_without_a_directory_for_checkpoints_a_restart_is_refused_at_once(
    job, run, snapshot, origin
):
    begin(job)
    leads = dataclasses.replace(job.nodes[0], checkpoint=CheckpointSettings(), snapshot=snapshot)
    job.write(Section.NODES, "a", leads)
    result = run("restart", "--job=chargpt")
    assert result.exit_code == 1
    assert result.output == (
        "job chargpt, attempt 1: 4 ranks on a, b\n"
        "holdfast: job chargpt was not restarted: there is no checkpoint: the job saves nowhere: it"
        " was started without --checkpoint-dir"
        f" (with --no-save it is restarted all the same, {origin})\n"
    )
    assert requests(job) == []


def test_what_is_in_memory_or_on_storage_is_what_a_restart_without_saving_goes_on_from(job):
    begin(job)
    for number, node in enumerate(job.nodes):
        held = {str(rank): [40] for rank in (2 * number, 2 * number + 1)}
        there = SnapshotReport(1, slots=2, held=held)
        job.write(Section.NODES, node.node, dataclasses.replace(node, snapshot=there))
    view = job.store.read()
    assert without_saving(view, "") == "from the newest snapshot (step 40 or later)"
    assert without_saving(view, "b") == "from nothing"
    saved = LedgerEntry("c", "/ck/step-30", 30, 1, 1, "", "complete", 1, 4, 0.0)
    job.write(Section.LEDGER, "c", saved)
    assert without_saving(job.store.read(), "b") == "from step 30"


def test_a_refusal_is_told_and_taken_away(job, run, leader):
    begin(job)
    answers, _ = leader

    def refuse(request):
        refused = dataclasses.replace(request, refused="without node b too few are left: 1")
        job.write(Section.REQUESTS, request.identifier, refused)

    answers["restart"] = refuse
    result = run("restart", "--job=chargpt", "--no-save", "--without", "b")
    assert result.exit_code == 1
    assert "was not restarted: without node b too few are left: 1" in result.output
    assert requests(job) == []


def test_a_paused_job_is_not_restarted(job, run):
    begin(job)
    job.plan(pause=PauseWindow("ann", "", 0.0, 2e9))
    result = run("restart", "--job=chargpt", "--no-save")
    assert result.exit_code == 1
    assert "it is paused (holdfast resume)" in result.output
    assert requests(job) == []


def test_a_job_that_was_stopped_over_it_was_not_restarted(job, run, leader):
    begin(job)
    answers, _ = leader
    answers["restart"] = lambda _: job.plan(state="stopped", message="out of budget")
    result = run("restart", "--job=chargpt", "--no-save")
    assert result.exit_code == 1
    assert "it has ended: out of budget" in result.output


def test_a_plan_of_an_older_writer_has_neither_pause_nor_quarantine():
    plan = decode(Plan, '{"attempt":1,"epoch":1,"state":"running"}')
    assert plan is not None
    assert (plan.pause, plan.outside) == (None, [])
