import dataclasses
import json

from holdfast_sidecar.config.paths import places
from holdfast_sidecar.config.settings import PathSettings
from holdfast_sidecar.export.job_record import JobRecord
from holdfast_sidecar.incidents.storage import IncidentStore
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.plan import Incident
from holdfast_sidecar.store.protocol import Section


def hang(identifier="3f2a77", start=1000.0, **given):
    facts = {
        "identifier": identifier,
        "attempt": 2,
        "cause": "hang",
        "culprit_node": "b",
        "culprit_ranks": [3],
        "confidence": 0.9,
        "since_unix_s": start,
        "detected_unix_s": start + 0.9,
        "ended_unix_s": start + 1.4,
        "reopened_unix_s": start + 1.5,
        "recovered_unix_s": start + 3.0,
        "decided": "restart",
        "step_reached": 123,
        "step_resumed": 120,
        "evidence": ["process is stopped"],
        "kept_by": ["b", "a"],
    }
    return Incident(**(facts | given))


def begin(job, *incidents):
    job.leave_record()
    job.add_node("a", 0)
    job.add_node("b", 1)
    job.plan()
    for incident in incidents:
        job.write(Section.INCIDENTS, incident.identifier, incident)


def test_the_newest_incident_is_told(job, run, home):
    begin(job, hang("old", start=10.0, cause="crash"), hang())
    kept = home / "chargpt" / "b" / "incidents" / "3f2a77" / "stacks-rank-3.txt"
    kept.parent.mkdir(parents=True)
    kept.write_text("x" * 2048)
    dumps = home / "chargpt" / "b" / "evidence" / "attempt-2"
    dumps.mkdir(parents=True)
    (dumps / kept.name).write_text("a copy")
    (dumps / "empty.txt").write_text("")
    (dumps / "fatal.txt").write_text("Segmentation fault")
    told = run("explain").output
    assert told.splitlines()[0] == (
        "Rank 3 on node b hung while its peers waited for it: process is stopped (90% sure); "
        "the job was restarted from step 120: 3.0 s without progress, 3 steps done again."
    )
    assert "incident 3f2a77, attempt 2: hang, recovered" in told
    assert "next      read the stack of the one to blame" in told
    lines = [" ".join(line.split()[1:]) for line in told.splitlines()]
    assert "+0 ms first sign of trouble, after step 123" in lines
    assert (
        "+900 ms declared: a rank stands still while its peers wait for it; "
        "rank 3 on node b (90% sure)"
    ) in lines
    assert "+1.4 s Holdfast ended attempt 2, and rank 3 on node b by SIGKILL" in lines
    assert "+1.5 s decided: restart; the next attempt was opened" in lines
    assert "+3.0 s every rank was stepping again, from step 120" in lines
    assert "because   process is stopped" in told
    assert "kept      evidence of it, on a, b" in told
    assert "cost      3.0 s without progress, 3 steps done again" in told
    files = [line.split() for line in told.splitlines() if str(home) in line]
    assert files == [[str(kept), "2.0", "KiB"], [str(dumps / "fatal.txt"), "18", "B"]]


def test_an_incident_can_be_named_by_its_beginning(job, run):
    begin(job, hang("old", start=10.0, cause="crash"), hang("older", start=5.0), hang())
    assert "incident old," not in run("explain").output
    assert "incident 3f2a77, " in run("explain", "3f").output
    result = run("explain", "ol")
    assert result.exit_code == 2
    assert "several incidents begin with 'ol'; known: older, old" in result.output
    assert "no incident begins with 'zz'" in run("explain", "zz").output


def test_one_that_is_not_over_says_so_and_names_no_cost(job, run):
    open_one = hang(recovered_unix_s=0.0, reopened_unix_s=0.0, decided="", step_resumed=0)
    begin(job, open_one)
    told = run("explain").output
    assert "not over yet" in told
    assert "cost" not in told
    assert "done      nothing yet" in told


def test_a_job_that_was_stopped_is_not_called_recovered(job, run):
    begin(job, hang(recovered_unix_s=0.0, reopened_unix_s=0.0, decided="stop"))
    told = run("explain").output
    assert "the job was stopped" in told
    assert "recovered" not in told


def test_a_node_whose_clock_is_ahead_does_not_turn_time_round(job, run):
    begin(job, hang(since_unix_s=2000.0))
    (story,) = json.loads(run("incidents", "--json").output)
    assert all(chapter["after_s"] >= 0 for chapter in story["chapters"])


def test_json_and_the_list_tell_the_same(job, run):
    begin(job, hang("old", start=10.0, cause="crash"), hang())
    story = json.loads(run("explain", "--json").output)
    assert (story["lost_s"], story["lost_steps"]) == (3.0, 3)
    assert story["files"] == []
    assert story["verdict"].startswith("Rank 3 on node b hung")
    assert len(story["next"]) == 1
    listed = run("incidents").output.splitlines()
    assert [line.split()[0] for line in listed] == ["incident", "old", "3f2a77"]


def test_a_job_that_is_gone_is_told_from_what_its_sidecars_kept(job, run, home):
    begin(job)
    settings = PathSettings()
    early = hang(recovered_unix_s=0.0, reopened_unix_s=0.0, decided="", step_resumed=0)
    IncidentStore(places(settings, "gone", "a")).keep({"3f2a77": encode(hang())})
    IncidentStore(places(settings, "gone", "b")).keep({"3f2a77": encode(early)})
    IncidentStore(places(settings, "older", "a")).keep({"x": encode(hang("x", start=5.0))})
    (home / "chargpt" / "server.json").unlink()
    result = run("explain")
    assert result.exit_code == 0, result.output
    assert "this is what is kept here of job 'gone'" in result.stderr
    assert "incident 3f2a77, attempt 2: hang, recovered" in result.stdout
    assert json.loads(run("explain", "--job", "older", "--json").stdout)["identifier"] == "x"
    assert run("explain", "--job", "never-was").exit_code == 3


def test_what_an_emptied_server_forgot_of_this_run_is_told_from_disk(job, run):
    begin(job, hang("new", start=30.0))
    job.plan(began_unix_s=10.0)
    earlier_run, forgotten = hang("earlier", start=5.0), hang("forgot", start=20.0)
    behind = hang("new", start=30.0, decided="")
    kept = {one.identifier: encode(one) for one in (earlier_run, forgotten, behind)}
    IncidentStore(places(PathSettings(), "chargpt", "a")).keep(kept)
    listed = run("incidents", "--job", "chargpt").output.splitlines()
    assert [line.split()[0] for line in listed] == ["incident", "forgot", "new"]
    assert "the next attempt was opened" in run("explain", "new").output
    assert "incident forgot, " in run("explain", "forgot").output


def test_numbers_that_the_job_lived_with_were_seen_and_left_alone(job, run):
    given = {"culprit_node": "", "culprit_ranks": [], "onset_step": 118, "step_resumed": 140}
    numbers = hang(
        cause="nonfinite", decided="left_alone", kept_by=[], reopened_unix_s=0.0, **given
    )
    begin(job, numbers)
    told = run("explain").output
    assert "nonfinite, seen and left alone until it was over by itself" in told
    assert "it was over by itself, after step 140" in told
    assert "to blame  all ranks" in told
    assert "lasted    3.0 s" in told
    assert json.loads(run("explain", "--json").output)["onset_step"] == 118
    assert "all ranks  left_alone" in run("incidents").output


def test_no_incident_is_said_plainly(job, run):
    begin(job)
    result = run("explain")
    assert result.exit_code == 0
    assert result.output == "job chargpt: no incident so far\n"
    assert run("incidents").output == "no incident so far\n"
    assert json.loads(run("incidents", "--json").output) == []


def test_a_job_that_is_gone_and_had_no_incident_is_known(job, run, home):
    begin(job)
    record = JobRecord("done", 0, 60, 0, "", "")
    path = places(PathSettings(), "gone", "a").job_record
    path.parent.mkdir(parents=True)
    path.write_text(encode(record))
    (home / "chargpt" / "server.json").unlink()
    for command in ("explain", "incidents"):
        result = run(command, "--job", "gone")
        assert result.exit_code == 0, result.output
        assert result.output == "job gone ended well; it had no incident\n"
    assert run("explain").output == "job gone ended well; it had no incident\n"
    assert json.loads(run("incidents", "--job", "gone", "--json").stdout) == []
    path.write_text(encode(dataclasses.replace(record, state="running")))
    assert "job gone is over: attempt 0 broke off" in run("explain", "--job", "gone").output


def test_a_job_that_ended_and_is_still_in_the_store_is_said_to_have_ended(job, run):
    begin(job)
    job.plan(state="stopped", message="asked for by ann@desk")
    told = "job chargpt was stopped: asked for by ann@desk; it had no incident\n"
    assert run("explain").output == told
    assert run("incidents").output == told


def test_where_an_incident_is_packed_is_told_for_scripts(job, run, home):
    begin(job, hang(bundles={"a": "host-a:/state/i.tar.gz", "b": "host-b:/state/i.tar.gz"}))
    archive = home / "chargpt" / "b" / "incidents" / "3f2a77.tar.gz"
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"x")
    assert run("explain", "--bundle").output.split() == [str(archive), "host-a:/state/i.tar.gz"]
    assert json.loads(run("explain", "--json").output)["packed"][0] == str(archive)
    assert f"packed, to hand on\n{archive}\n" in run("explain").output


def test_an_incident_that_is_not_over_has_no_bundle_yet(job, run):
    begin(job, hang(recovered_unix_s=0.0))
    result = run("explain", "--bundle")
    assert result.exit_code == 2
    assert "not packed yet" in result.output


def test_where_a_bundle_is_that_is_over_and_not_there_is_not_made_up(job, run):
    begin(job, hang())
    result = run("explain", "--bundle")
    assert result.exit_code == 2
    assert "is not packed (that takes a moment;" in result.output


def test_who_failed_first_is_told_from_what_the_nodes_of_this_machine_kept(job, run, home):
    begin(job, hang(cause="crash"))
    directory = home / "chargpt" / "b" / "incidents" / "3f2a77"
    directory.mkdir(parents=True)
    sign = {
        "rank": 3,
        "node": "b",
        "words": "ValueError: bad sample",
        "weight": 2,
        "at_unix_s": 1000.0,
        "source": "exit",
        "of_a_newer_version": 1,
    }
    (directory / "first-error.json").write_text(json.dumps({"signs": [sign]}))
    assert "first     rank 3 on node b: ValueError: bad sample (90% sure" in run("explain").output
    assert json.loads(run("explain", "--json").output)["failed"][0]["rank"] == 3
