import os
import signal
import threading
import time

from holdfast_sidecar.coordination.keys import Section
from holdfast_sidecar.coordination.reports import (
    CheckpointOrder,
    NodeReport,
    Request,
    SavedPart,
    decode,
)
from holdfast_sidecar.server.embedded import start_server


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


def test_stop_writes_a_request_and_waits_for_the_end(job, run):
    begin(job)
    asked = []

    def obey(request):
        asked.append(request)
        job.plan(state="stopped", message=f"asked for by {request.by}")

    when_asked(job, obey)
    result = run("stop")
    assert result.exit_code == 0, result.output
    assert asked[0].kind == "stop"
    assert not asked[0].save_first
    lines = result.output.splitlines()
    assert lines[0] == "stopping attempt 1, 4 ranks …"
    assert lines[-1] == f"job chargpt has ended: asked for by {asked[0].by}"


def test_saving_first_is_asked_for_and_its_progress_is_told(job, run):
    begin(job)

    def obey(request):
        assert request.save_first
        order = CheckpointOrder("id", 1, 1, 60, "/ck", "armed", 9.0)
        part = SavedPart("id", {"0": "saved", "1": "saving"})
        report = NodeReport("a", "i", 2, 1, 1, 1, True, saved=part)
        job.write(Section.NODES, "a", report)
        job.write(Section.CHECKPOINT, "current", order)
        time.sleep(0.4)
        job.plan(state="stopped", message="saved and stopped")

    when_asked(job, obey)
    result = run("stop", "--save")
    assert result.exit_code == 0, result.output
    assert "saving at step 60: 1 of 4 ranks done …" in result.output


def test_a_job_that_does_not_end_in_time_is_exit_1(job, run):
    begin(job)
    result = run("stop", "--timeout", "300ms")
    assert result.exit_code == 1
    assert "has not ended within 300 ms" in result.output


def test_without_a_leader_the_wait_is_explained(job, run):
    begin(job)
    job.store.resign("a/i")
    result = run("stop", "--timeout", "300ms")
    assert "nobody leads yet" in result.output


def test_a_job_that_has_ended_is_not_asked_again(job, run):
    begin(job)
    job.plan(state="done")
    result = run("stop")
    assert result.exit_code == 0
    assert job.store.read().section(Section.REQUESTS) == {}


def test_a_wrong_timeout_is_exit_2(job, run):
    result = run("stop", "--timeout", "soon")
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
    result = run("stop")
    own.stop()
    assert result.exit_code == 0, result.output
    assert "has ended, and its own Redis with it" in result.output


def _client(server):
    from holdfast_sidecar.coordination.connection import connect

    return connect(server.settings, {})
