import dataclasses
import json
import os

from tests.unit.pretend_pages import NOBODY, set_word, write_page

from holdfast.contract.page import Ending, Word
from holdfast_sidecar.records.checkpoint import LedgerEntry
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.plan import Incident
from holdfast_sidecar.startup import SidecarRecord, write_record
from holdfast_sidecar.store.protocol import Section


def healthy(job):
    job.leave_record()
    job.add_node("a", 0)
    job.add_node("b", 1)
    job.plan()
    job.lead()


def test_a_healthy_job_is_found_by_its_launchers_record_and_exits_0(job, run):
    healthy(job)
    job.live()
    result = run("status")
    assert result.exit_code == 0, result.output
    assert "job chargpt: running, attempt 1 after 1 restart, 4 ranks, healthy" in result.output
    rows = [line.split() for line in result.output.splitlines()]
    assert ["3", "b", "4701", "41", "backward", "12", "ms", "40", "ms", "-"] in rows
    assert ["b", "1", "running", "alive", "act", "127.0.0.1:1"] in rows


def test_a_silent_launcher_is_trouble_and_exits_1(job, run):
    healthy(job)
    job.agents = [agent for agent in job.agents if agent.node != "b"]
    job.live()
    result = run("status")
    assert result.exit_code == 1
    assert "node b: its launcher's heartbeat stands still" in result.output
    assert "node a: its launcher" not in result.output


def test_a_sidecar_that_serves_nothing_is_named_with_what_to_set(job, run):
    healthy(job)
    why = "can't listen on 127.0.0.1:9750: Address already in use; choose another --listen"
    job.nodes[1] = dataclasses.replace(job.nodes[1], metrics_address="", unserved=why)
    job.live()
    job.write(Section.NODES, "b", job.nodes[1])
    result = run("status")
    assert result.exit_code == 0, "the job itself lacks nothing"
    said = " ".join(result.output.split())
    assert f"unserved b: its sidecar serves neither metrics nor a page: {why}" in said


def test_a_finding_is_trouble_and_is_told_with_its_evidence(job, run):
    healthy(job)
    finding = Finding(Kind.STRAGGLER, "b", 0.0, 0.8, [3], ["1.6 times its peers' time"])
    job.nodes[1].findings.append(finding)
    job.live()
    job.write(Section.NODES, "b", job.nodes[1])
    result = run("status")
    assert result.exit_code == 1
    assert "straggler  rank 3 on node b" in result.output
    assert "80% sure: 1.6 times its peers' time" in result.output


def test_json_tells_the_same_and_more(job, run):
    healthy(job)
    job.live()
    job.write(Section.LEDGER, "s40", LedgerEntry("s40", "/ck", 40, 1, 1, "", "complete", 9, 4, 1.0))
    job.write(Section.LEDGER, "s90", LedgerEntry("s90", "/ck", 90, 0, 1, "", "complete", 9, 4, 1.0))
    job.write(Section.LEDGER, "s41", LedgerEntry("s41", "/ck", 41, 1, 1, "", "poisoned", 9, 4, 1.0))
    job.write(Section.INCIDENTS, "x", Incident("x", 0, "crash", "b", [3], detected_unix_s=5.0))
    told = json.loads(run("status", "--json").output)
    assert told["is_healthy"] is True
    assert told["trouble"] == []
    assert told["leader"] == "a/i"
    assert told["checkpoint"]["identifier"] == "s40"
    assert told["incident"]["identifier"] == "x"
    assert [rank["rank"] for node in told["nodes"] for rank in node["ranks"]] == [0, 1, 2, 3]


def test_a_job_that_ended_well_exits_0_and_one_that_was_given_up_exits_1(job, run):
    healthy(job)
    job.plan(state="done")
    assert run("status").exit_code == 0
    job.plan(state="stopped", exit_code=65, message="the same failure 2 times: boom")
    result = run("status")
    assert result.exit_code == 1
    assert "stopped with exit code 65: the same failure 2 times: boom" in result.output


def test_a_job_that_waits_for_nodes_says_so(job, run):
    job.leave_record()
    job.add_node("a", 0)
    result = run("status")
    assert result.exit_code == 1
    assert "no attempt has been formed yet" in result.output


def test_no_job_is_exit_3_and_one_line(job, run):
    result = run("status")
    assert result.exit_code == 3
    assert result.output.startswith("holdfast: no job of yours runs here (looked in ")
    assert result.output.count("\n") == 1
    assert run("status", "--job", "nope").exit_code == 3


def test_several_jobs_must_be_told_apart(job, run):
    healthy(job)
    job.leave_record("other")
    result = run("status")
    assert result.exit_code == 2
    assert result.output == "holdfast: several jobs are here, name one with --job: chargpt, other\n"


def test_a_record_left_by_a_dead_server_does_not_stand_in_the_way(job, run, home):
    healthy(job)
    job.live()
    dead = home / "dead" / "server.json"
    dead.parent.mkdir(parents=True)
    dead.write_text(json.dumps({"url": "unix:///nowhere/redis.sock"}))
    assert run("status").exit_code == 0
    result = run("status", "--job", "dead")
    assert result.exit_code == 3
    assert "job 'dead' is over" in result.output


def test_a_server_can_be_named_and_its_only_job_is_found(job, run, server):
    healthy(job)
    job.live()
    redis = ["--redis", server.url, "--redis-password-file", str(server.password_file)]
    assert "job chargpt: running" in run("status", *redis).output
    result = run("status", *redis, "--job", "nope")
    assert result.exit_code == 3
    assert "knows no job 'nope'" in result.output


def test_a_server_that_does_not_answer_is_exit_2(job, run):
    result = run("status", "--redis", "unix:///nowhere/redis.sock", "--job", "chargpt")
    assert result.exit_code == 2
    assert "does not answer" in result.output
    assert result.output.count("\n") == 1


def test_a_job_whose_redis_is_away_but_whose_sidecar_lives_is_trouble(
    job, run, home, tmp_path, monkeypatch
):
    monkeypatch.setenv("HOLDFAST_SET_PATHS_SHM_DIR", str(tmp_path / "shm"))
    pages = tmp_path / f"shm/holdfast-{os.getuid()}/cut-off/a"
    pages.mkdir(parents=True)
    record = home / "cut-off" / "a" / "sidecar.json"
    record.parent.mkdir(parents=True)
    write_record(record, SidecarRecord("cut-off", "a", 0))
    (home / "cut-off" / "server.json").write_text(json.dumps({"url": "unix:///nowhere.sock"}))
    result = run("status", "--job", "cut-off")
    assert result.exit_code == 1
    assert "the sidecar of a is alive: nothing is decided until Redis is back" in result.output
    write_page(pages, attempt=1, local_rank=0)
    told = run("status", "--job", "cut-off").output
    assert "the sidecar of a is alive: training goes on, nothing is decided until" in told
    ended_well = write_page(pages, attempt=1, local_rank=1, pid=NOBODY)
    set_word(ended_well, Word.ENDING, Ending.FINISHED)
    write_page(pages, attempt=0, local_rank=2, pid=NOBODY, claimed_ns=1)  # has been replaced
    assert run("status", "--job", "cut-off").output == told
    write_page(pages, attempt=1, local_rank=2, pid=NOBODY)
    told = run("status", "--job", "cut-off").output
    assert "rank 2 has died, nothing is restarted until Redis is back" in told
    write_page(pages, attempt=1, local_rank=3, pid=NOBODY)
    told = run("status", "--job", "cut-off").output
    assert "ranks 2, 3 have died, nothing is restarted until Redis is back" in told
    reused = json.loads(record.read_text()) | {"start_ticks": 1}
    record.write_text(json.dumps(reused))
    assert run("status", "--job", "cut-off").exit_code == 3
