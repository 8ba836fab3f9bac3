import dataclasses
import os
import pty
import signal
import subprocess
import sys
import threading
import time

import pytest

from holdfast_sidecar.records.checkpoint import CheckpointOrder
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.plan import Request
from holdfast_sidecar.records.reports import NodeReport
from holdfast_sidecar.store.embedded import start_server
from holdfast_sidecar.store.protocol import Section


def begin(job):
    job.leave_record()
    job.add_node("a", 0)
    job.add_node("b", 1)
    job.plan()
    job.lead()


def when_asked(job, then):
    """Do `then(request)` once a request is there."""

    def wait() -> None:
        while not job.store.read().section(Section.REQUESTS):
            time.sleep(0.02)
        (text,) = job.store.read().section(Section.REQUESTS).values()
        then(decode(Request, text))

    threading.Thread(target=wait, daemon=True).start()


def test_a_job_that_somebody_else_launched_can_be_asked_for_nothing(job, run):
    job.leave_record()
    watched = NodeReport("a", "i", 1, -1, 0, 0, True, attached=True)
    job.write(Section.NODES, "a", watched)
    for command in (
        ["stop", "--job=chargpt", "--timeout", "1s"],
        ["checkpoint", "now", "--timeout", "1s"],
    ):
        result = run(*command)
        assert result.exit_code == 2
        assert "is only watched here (holdfast attach): ask whoever launched it" in result.output
    assert not job.store.read().section(Section.REQUESTS)


def test_stop_writes_a_request_and_waits_for_the_end(job, run):
    begin(job)
    asked = []

    def obey(request):
        asked.append(request)
        job.plan(state="stopped", message=f"asked for by {request.by}")

    when_asked(job, obey)
    result = run("stop", "--job=chargpt")
    assert result.exit_code == 0, result.output
    assert asked[0].kind == "stop"
    lines = result.output.splitlines()
    assert lines[:2] == ["job chargpt, attempt 1: 4 ranks on a, b", "stopping attempt 1, 4 ranks …"]
    assert lines[-1] == f"job chargpt has ended: asked for by {asked[0].by}"


def test_saving_first_saves_and_then_stops(job, run):
    begin(job)

    def stop(request):
        assert request.kind == "stop"
        job.plan(state="stopped", message="saved and stopped")

    def save(request):
        assert request.kind == "checkpoint"
        order = CheckpointOrder("id", 1, 1, 60, "/ck/step-60", "complete", 9.0, request.identifier)
        job.write(Section.CHECKPOINT, "current", order)
        job.store.report(Section.REQUESTS, request.identifier, None)
        when_asked(job, stop)

    when_asked(job, save)
    result = run("stop", "--job=chargpt", "--save")
    assert result.exit_code == 0, result.output
    assert "saved at step 60: /ck/step-60" in result.output


def test_a_job_that_can_not_be_saved_is_not_stopped(job, run):
    begin(job)

    def refuse(request):
        reason = "rank 0 has not said what to save"
        order = CheckpointOrder("id", 1, 1, 0, "", "void", 0.0, request.identifier, reason)
        job.write(Section.CHECKPOINT, "current", order)
        job.store.report(Section.REQUESTS, request.identifier, None)

    when_asked(job, refuse)
    result = run("stop", "--job=chargpt", "--save")
    assert result.exit_code == 1
    assert "was not stopped, as there is no checkpoint: rank 0 has not said" in result.output
    assert job.store.read().section(Section.REQUESTS) == {}


def test_a_job_without_an_attempt_can_be_stopped_too(job, run):
    job.leave_record()
    job.add_node("a", 0)
    job.lead()
    when_asked(job, lambda _: job.plan(state="stopped", message="before it began"))
    result = run("stop", "--job=chargpt")
    assert result.output.splitlines()[1] == "stopping before the first attempt …"


def test_a_job_that_does_not_end_in_time_is_exit_1(job, run):
    begin(job)
    result = run("stop", "--job=chargpt", "--timeout", "300ms")
    assert result.exit_code == 1
    assert "has not ended within 300 ms" in result.output


def test_without_a_leader_the_wait_is_explained(job, run):
    begin(job)
    job.store.resign("a/i")
    result = run("stop", "--job=chargpt", "--timeout", "300ms")
    assert "nobody leads yet" in result.output


COMMANDS = [("stop",), ("restart", "--no-save"), ("pause",), ("node", "drain", "a", "--force")]


@pytest.mark.parametrize("command", COMMANDS)
def test_what_ends_or_holds_a_job_wants_its_name(job, run, command):
    """The only job that is seen may be another user's."""
    begin(job)
    agent = dataclasses.replace(job.agents[0], command={"user": "ann"})
    job.write(Section.AGENTS, "a", agent)
    result = run(*command)
    assert result.exit_code == 2
    (line,) = result.output.splitlines()
    assert "name the job with --job" in line
    assert "(job chargpt of ann, attempt 1: 4 ranks on a, b)" in line
    assert job.store.read().section(Section.REQUESTS) == {}


@pytest.mark.parametrize(("answer", "is_stopped"), [("n", False), ("y", True)])
def test_on_a_terminal_it_is_asked_whether_the_only_job_is_meant(job, answer, is_stopped):
    begin(job)
    if is_stopped:
        when_asked(job, lambda _: job.plan(state="stopped", message="as asked"))
    ours, theirs = pty.openpty()
    try:
        command = [sys.executable, "-m", "holdfast_sidecar.cli.main", "stop", "--timeout=20s"]
        stop = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs)
        os.write(ours, f"{answer}\n".encode())
        assert stop.wait(60) == (0 if is_stopped else 1)
        shown = os.read(ours, 10000).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert "job chargpt, attempt 1: 4 ranks on a, b" in shown
    assert "stop it? [y/N]" in shown
    assert ("job chargpt has ended: as asked" in shown) is is_stopped
    assert bool(job.store.read().section(Section.REQUESTS)) is is_stopped


def test_who_says_yes_beforehand_is_not_asked(job, run):
    begin(job)
    when_asked(job, lambda _: job.plan(state="stopped", message="as asked"))
    assert run("stop", "--yes").exit_code == 0


def test_a_job_that_has_ended_is_not_asked_again(job, run):
    begin(job)
    job.plan(state="done")
    result = run("stop", "--job=chargpt")
    assert result.exit_code == 0
    assert job.store.read().section(Section.REQUESTS) == {}


def test_a_wrong_timeout_is_exit_2(job, run):
    result = run("stop", "--job=chargpt", "--timeout", "soon")
    assert result.exit_code == 2
    assert "--timeout 'soon': a duration is written 90" in result.output


def test_a_job_whose_own_server_ends_with_it_has_ended(job, run, tmp_path, home):
    own = start_server(tmp_path / "own")
    other = type(job)(type(job.store)(_client(own), "chargpt"), home, own)
    begin(other)

    def obey(request):
        (home / "chargpt" / "server.json").unlink()
        os.kill(own.pid, signal.SIGKILL)

    when_asked(other, obey)
    result = run("stop", "--job=chargpt")
    own.stop()
    assert result.exit_code == 0, result.output
    assert "has ended, and its own Redis with it" in result.output


def _client(server):
    from holdfast_sidecar.store.connection import connect

    return connect(server.settings, {})
