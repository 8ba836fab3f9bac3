import dataclasses
import json
import threading
import time
from collections.abc import Callable

import pytest

from holdfast_sidecar.records.checkpoint import CheckpointOrder
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.plan import Incident, Member, Plan, Quarantine, Request
from holdfast_sidecar.records.reports import AgentReport, Exertion, GateVerdict, NodeReport
from holdfast_sidecar.store.protocol import Section

FIT = GateVerdict("fit", checked_unix_s=time.time(), gpus=8, gpus_all=8)
UNFIT = GateVerdict("unfit", ["gpus: 7 of 8 are there"], time.time(), gpus=7, gpus_all=8)
OUTSIDE = Quarantine("m", "b", 0.0, 2e9, ["3 failures within 24 h are blamed on it"])


def begin(job, plan=True):
    """a and b train, c is a spare that is unfit."""
    job.leave_record()
    job.add_node("a", 0)
    job.add_node("b", 1)
    spare = AgentReport("c", "i", "joining", -1, 1, 2, "", 2, 2)
    report = NodeReport("c", "i", 1, 1, 1, -1, True, gate=UNFIT)
    job.agents.append(spare)
    job.nodes.append(report)
    job.nodes[0] = dataclasses.replace(job.nodes[0], gate=FIT)
    for section, records in ((Section.AGENTS, job.agents), (Section.NODES, job.nodes)):
        for record in records:
            job.write(section, record.node, record)
    if plan:
        job.plan()
    job.lead()


def requests(job):
    found = job.store.read().section(Section.REQUESTS).values()
    return [request for text in found if (request := decode(Request, text)) is not None]


def forget(job, request):
    job.store.report(Section.REQUESTS, request.identifier, None)


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
                    answers.get(request.kind, lambda _: None)(request)

    thread = threading.Thread(target=lead, daemon=True)
    thread.start()
    yield answers, seen
    ended.set()
    thread.join()


def rows(output):
    return {line.split()[0]: line for line in output.splitlines() if line}


def test_the_table_says_who_trains_who_is_fit_and_why_one_waits(job, run):
    begin(job)
    job.live()
    result = run("nodes")
    assert result.exit_code == 0, result.output
    told = rows(result.output)
    assert told["node"].split() == (["node", "place", "ranks", "GPUs", "verdict", "blamed", "why"])
    assert "node rank 0" in told["a"]
    assert "0, 1" in told["a"]
    assert "8/8" in told["a"]
    assert "  fit" in told["a"]
    assert told["b"].split()[-3:] == ["-", "-", "-"], "its sidecar says nothing of it"
    assert told["c"].split()[1:5] == ["unfit", "-", "7/8", "unfit"]
    assert told["c"].endswith("gpus: 7 of 8 are there")


def test_scripts_get_everything(job, run):
    begin(job)
    job.live()
    found = {line["node"]: line for line in json.loads(run("nodes", "--json").output)}
    assert found["c"]["gate"]["reasons"] == ["gpus: 7 of 8 are there"]
    assert (found["a"]["node_rank"], found["a"]["launcher"]) == (0, True)
    one = json.loads(run("nodes", "show", "c", "--json").output)
    assert one["place"] == "unfit"


def test_a_node_that_is_kept_outside_is_listed_though_it_has_gone(job, run):
    begin(job)
    job.plan(outside=[dataclasses.replace(OUTSIDE, node="z", part="mz")])
    job.live()
    told = rows(run("nodes").output)
    assert told["z"].split()[1] == "away"
    assert told["z"].endswith("3 failures within 24 h are blamed on it")


def test_how_often_a_node_was_blamed_stands_beside_it(job, run):
    begin(job)
    now = time.time()
    for number in (1, 2):
        crash = Incident(f"i{number}", number, "crash", "b", [2], 0.9, now, now, "restart")
        job.write(Section.INCIDENTS, f"i{number}", dataclasses.replace(crash, culprit_part="mb"))
    job.live()
    assert rows(run("nodes").output)["b"].endswith(" 2.0 of 2")
    assert "blamed for  2 crash; 2.0 still counts against it" in run("nodes", "show", "b").output


def test_a_silent_node_says_nothing_any_more(job, run):
    begin(job)
    job.agents, job.nodes = job.agents[:2], job.nodes[:2]
    job.live()
    told = rows(run("nodes").output)
    assert told["c"].split()[1] == "away"
    assert "its launcher is silent" in told["c"]


def test_all_that_is_known_of_one_node(job, run):
    begin(job)
    figures = {"matmul_flops_per_s": 4e14, "memory_bytes_per_s": 2e12}
    done = Exertion("r", "done", figures=figures, device="H100", devices=8, ended_unix_s=1.0)
    slow = dataclasses.replace(done, figures=figures | {"matmul_flops_per_s": 3e14})
    blind = dataclasses.replace(UNFIT, blind=["room: no host"])
    job.nodes[2] = dataclasses.replace(job.nodes[2], gate=blind, exertion=slow)
    job.nodes[0] = dataclasses.replace(job.nodes[0], exertion=done)
    job.plan(outside=[dataclasses.replace(OUTSIDE, node="c", part="/c")])
    job.live()
    output = run("nodes", "show", "c").output
    assert "node c: outside" in output
    assert "unfit for   gpus: 7 of 8 are there" in output
    assert "not seen    room: no host" in output
    assert "GPUs        7 of 8 are well" in output
    assert "3 failures within 24 h are blamed on it" in output
    assert "holdfast node return c" in output
    assert "matmul      300.0 TFLOP/s (75% of the others' median, slow)" in output
    assert "memory      2000.0 GB/s (100% of the others' median)" in output


def test_how_many_gpus_are_well_is_not_made_up_while_the_driver_is_silent(job, run):
    begin(job)
    silent = dataclasses.replace(FIT, blind=["gpus: the driver does not answer"], gpus=None)
    job.nodes[0] = dataclasses.replace(job.nodes[0], gate=silent)
    job.live()
    assert "?/8" in rows(run("nodes").output)["a"]
    assert "GPUs        8, how they are is not known" in run("nodes", "show", "a").output


@pytest.mark.parametrize(
    "command", [("nodes", "show", "x"), ("nodes", "test", "x"), ("node", "drain", "x")]
)
def test_an_unknown_node_is_exit_2_with_those_there_are(job, run, command):
    begin(job)
    job.live()
    result = run(*command)
    assert result.exit_code == 2
    assert "job chargpt has no node x (there are: a, b, c)" in result.output


@pytest.mark.parametrize(
    "command", [("nodes",), ("nodes", "show", "a"), ("nodes", "test", "a"), ("node", "drain", "a")]
)
def test_no_job_is_exit_3_and_no_server_is_one_line(run, home, command):
    assert run(*command).exit_code == 3
    result = run(*command, "--redis", "redis://127.0.0.1:1", "--job", "j")
    assert result.exit_code == 2
    assert len(result.output.splitlines()) == 1
    assert "does not answer" in result.output


def test_an_option_before_the_subcommand_is_not_lost_in_silence(job, run):
    begin(job)
    result = run("nodes", "--job", "chargpt", "show", "a")
    assert result.exit_code == 2
    assert "write --job behind show" in result.output


def test_a_drain_waits_until_the_plan_says_so_and_a_return_until_it_does_not(job, run, leader):
    begin(job)
    answers, seen = leader

    def drain(request):
        one = Quarantine(
            "/b", "b", request.at_unix_s, request.at_unix_s + request.for_s, ["e"], request.by
        )
        job.plan(outside=[one])
        forget(job, request)

    def back(request):
        job.plan()
        forget(job, request)

    answers |= {"drain": drain, "return": back}
    result = run("node", "drain", "--job=chargpt", "b", "--for", "2h", "--reason", "loud fan")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("job chargpt: node b is kept outside until 2")
    assert "it trains on in this attempt; --now restarts without it" in result.output
    assert (seen[0].kind, seen[0].node, seen[0].for_s, seen[0].reason) == (
        *("drain", "b", 7200.0),
        "loud fan",
    )
    job.live()
    assert run("nodes").output.count("outside for another 2 h: e") == 1
    result = run("node", "return", "b")
    assert (result.exit_code, result.stdout) == (0, "job chargpt: node b may come in again\n")


def test_a_return_of_an_unfit_node_says_what_it_still_waits_for(job, run, leader):
    begin(job)
    job.plan(outside=[dataclasses.replace(OUTSIDE, node="c", part="/c")])
    answers, _ = leader

    def back(request):
        job.plan()
        forget(job, request)

    answers["return"] = back
    result = run("node", "return", "c")
    assert result.exit_code == 0
    assert "node c may come in again, once it is fit: gpus: 7 of 8 are there" in result.output


def test_a_return_of_a_node_that_is_not_outside_is_refused_with_those_that_are(job, run):
    begin(job)
    job.plan(outside=[OUTSIDE])
    result = run("node", "return", "a")
    assert result.exit_code == 1
    assert "node a is not kept outside (kept outside: b)" in result.output
    assert requests(job) == []


def test_before_the_first_attempt_a_drain_stands_as_a_request_and_a_return_takes_it_back(job, run):
    begin(job, plan=False)
    result = run("node", "drain", "--job=chargpt", "a")
    assert result.exit_code == 0, result.output
    assert [(r.kind, r.node) for r in requests(job)] == [("drain", "a")]
    job.live()
    assert "outside for another" in rows(run("nodes").output)["a"]
    result = run("node", "return", "a")
    assert (result.exit_code, result.stdout) == (0, "job chargpt: node a may come in again\n")
    assert requests(job) == []


def test_a_refused_drain_is_told_and_taken_away(job, run, leader):
    begin(job)
    answers, _ = leader
    answers["drain"] = lambda request: job.write(
        Section.REQUESTS, request.identifier, dataclasses.replace(request, refused="too few")
    )
    result = run("node", "drain", "--job=chargpt", "b")
    assert result.exit_code == 1
    assert "was not changed: too few" in result.output
    assert requests(job) == []


def test_a_drain_of_no_length_and_of_a_job_that_has_ended(job, run):
    assert run("node", "drain", "--job=chargpt", "b", "--for", "0").exit_code == 2
    begin(job)
    job.plan(state="done")
    result = run("node", "drain", "--job=chargpt", "b")
    assert result.exit_code == 1
    assert "has ended: done" in result.output


def test_a_return_in_a_job_that_has_ended_stands_for_its_next_run(job, run):
    begin(job)
    job.plan(state="stopped", outside=[OUTSIDE])
    result = run("node", "return", "b")
    assert (result.exit_code, result.stdout) == (0, "job chargpt: node b may come in again\n")
    assert [(r.kind, r.node) for r in requests(job)] == [("return", "b")]


def test_now_saves_drains_and_restarts(job, run, leader):
    begin(job)
    answers, seen = leader

    def save(request):
        order = CheckpointOrder("id", 1, 1, 60, "/ck/step-60", "complete", 9.0, request.identifier)
        job.write(Section.CHECKPOINT, "current", order)
        forget(job, request)

    def drain(request):
        job.plan(outside=[dataclasses.replace(OUTSIDE, node="b")])
        forget(job, request)

    def restart(request):
        stepping = Incident(
            request.identifier,
            1,
            "restart",
            detected_unix_s=100.0,
            decided="restart",
            recovered_unix_s=104.0,
            step_resumed=60,
        )
        # As the leader does: the attempt is opened long before the incident is over.
        job.plan(attempt=2, members=[Member("a", "i", 0, 0, 2)])
        job.write(Section.INCIDENTS, request.identifier, stepping)
        forget(job, request)

    answers |= {"checkpoint": save, "drain": drain, "restart": restart}
    result = run("node", "drain", "--job=chargpt", "b", "--now")
    assert result.exit_code == 0, result.output
    assert [request.kind for request in seen] == ["checkpoint", "drain", "restart"]
    assert seen[2].reason == "without node b"
    assert result.output.splitlines()[-1] == (
        "job chargpt: attempt 2 runs, from step 60, after 4.0 s"
    )


def test_a_node_s_test_is_followed_and_told_beside_the_others(job, run, leader):
    begin(job)
    answers, seen = leader
    done = Exertion("", "done", figures={"memory_bytes_per_s": 2e10}, device="cpu", devices=2)
    job.nodes[0] = dataclasses.replace(job.nodes[0], exertion=done)
    job.nodes[1] = dataclasses.replace(job.nodes[1], gate=FIT)
    job.live()

    def test(request):
        own = dataclasses.replace(done, asked_by=request.identifier)
        job.nodes[1] = dataclasses.replace(job.nodes[1], exertion=own)

    answers["test"] = test
    result = run("nodes", "test", "b")
    assert result.exit_code == 0, result.output
    assert "node b: nothing is wrong" in result.output
    assert "memory      20.0 GB/s (100% of the others' median)" in result.output
    assert (seen[0].node, seen[0].is_forced) == ("b", False)
    assert requests(job) == []

    def wrong(request):
        own = dataclasses.replace(done, asked_by=request.identifier, wrong=["cpu 0: bad"])
        job.nodes[1] = dataclasses.replace(job.nodes[1], exertion=own)

    answers["test"] = wrong
    result = run("nodes", "test", "b", "--force", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["wrong"] == ["cpu 0: bad"]
    assert seen[-1].is_forced


def test_a_refused_test_is_told_and_one_without_a_sidecar_not_asked_for(job, run, leader):
    begin(job)
    answers, _ = leader
    job.live()

    def refuse(request):
        job.nodes[0] = dataclasses.replace(
            job.nodes[0], exertion=Exertion(request.identifier, "refused", "ranks run there")
        )

    answers["test"] = refuse
    result = run("nodes", "test", "a")
    assert result.exit_code == 1
    assert "node a was not tested: ranks run there" in result.output
    job.nodes = job.nodes[:1]
    result = run("nodes", "test", "b")
    assert result.exit_code == 1
    assert "no sidecar of it answers" in result.output
    assert requests(job) == []


def test_status_says_who_waits_as_unfit(job, run):
    begin(job)
    job.live()
    output = run("status").output
    assert "unfit       c, not taken in: gpus: 7 of 8 are there (holdfast nodes show c)" in output
    assert rows(output)["c"].split()[1] == "unfit"


def test_a_verdict_of_an_older_writer_is_none_and_of_a_newer_one_is_read():
    report = decode(
        NodeReport,
        '{"node":"a","incarnation":"i","beat":1,"floor_attempt":1,'
        '"floor_epoch":1,"attempt":1,"launcher_alive":true}',
    )
    assert report is not None
    assert report.gate is None
    assert decode(GateVerdict, '{"state":"fit","more":1}') == GateVerdict("fit")
    plan = decode(
        Plan,
        '{"attempt":1,"epoch":1,"state":"running","outside":[{"part":"m","node":"b",'
        '"since_unix_s":0,"until_unix_s":1}]}',
    )
    assert plan is not None
    assert plan.outside[0].is_drained is False
