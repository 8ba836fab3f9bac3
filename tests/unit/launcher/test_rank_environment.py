from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from holdfast.contract import environment
from holdfast.state.batch_skips import parse_skips
from holdfast_sidecar.config.paths import Paths
from holdfast_sidecar.launcher.join import context_for
from holdfast_sidecar.launcher.rank_process import RankContext, rank_environment
from holdfast_sidecar.records.plan import BatchSkip, Candidate, Member, Plan

CONTEXT = RankContext(
    job="j",
    node="n",
    attempt=3,
    epoch=7,
    places=Paths(Path("/shm/j/n"), Path("/state/j/n")),
    hooks_path="/hooks",
    resume=(Candidate("c1", "/ck/step-5-c1", 5),),
)


def test_a_rank_is_told_its_attempt_and_where_its_files_go() -> None:
    found = rank_environment({"RANK": "1"}, CONTEXT)
    assert found["RANK"] == "1"
    assert (found[environment.JOB], found[environment.NODE]) == ("j", "n")
    assert (found[environment.ATTEMPT], found[environment.EPOCH]) == ("3", "7")
    assert found[environment.PAGE_DIR] == "/shm/j/n"
    assert found[environment.EVIDENCE_DIR] == "/state/j/n/evidence/attempt-3"
    (candidate,) = json.loads(found[environment.RESUME])
    assert (candidate["identifier"], candidate["path"]) == ("c1", "/ck/step-5-c1")
    assert (candidate["step"], candidate["tier"], candidate["fetches"]) == (5, "durable", {})
    assert environment.CHECKPOINT_DIR not in found
    assert environment.CHECKPOINT_KEY_FILE not in found


def test_a_rank_is_told_where_the_key_of_the_manifests_is() -> None:
    found = rank_environment({}, replace(CONTEXT, checkpoint_key_file="/keys/job"))
    assert found[environment.CHECKPOINT_KEY_FILE] == "/keys/job"


def test_a_rank_is_told_how_long_the_others_may_write() -> None:
    context = replace(CONTEXT, checkpoint_dir="/ck", checkpoint_write_timeout_s=900.0)
    found = rank_environment({}, context)
    assert found[environment.CHECKPOINT_WRITE_TIMEOUT] == "900"


def test_a_rank_is_told_whether_snapshots_are_wanted_and_who_copies_them() -> None:
    found = rank_environment({}, CONTEXT)
    assert (found[environment.SNAPSHOTS], found[environment.PEER_COPIES]) == ("1", "async")
    found = rank_environment({}, replace(CONTEXT, takes_snapshots=False, peer_copies="sync"))
    assert (found[environment.SNAPSHOTS], found[environment.PEER_COPIES]) == ("0", "sync")


def test_a_rank_is_told_whether_it_may_be_asked_about_its_collectives() -> None:
    assert rank_environment({}, CONTEXT)[environment.FLIGHT_RECORDER] == "1"
    found = rank_environment({}, replace(CONTEXT, flight_recorder=False))
    assert found[environment.FLIGHT_RECORDER] == "0"


def test_a_rank_is_told_how_long_to_wait_for_a_copy() -> None:
    assert rank_environment({}, CONTEXT)[environment.PEER_TIMEOUT] == "60"
    found = rank_environment({}, replace(CONTEXT, peer_timeout_s=2.5))
    assert found[environment.PEER_TIMEOUT] == "2.5"


def test_a_rank_waits_for_no_copy_where_no_other_node_takes_part() -> None:
    syncs = replace(CONTEXT, peer_copies="sync")
    alone = Plan(4, 8, "running", members=[Member("a", "x", 0, 0, 2)])
    two = replace(alone, members=[Member("a", "x", 0, 0, 1), Member("b", "y", 1, 1, 1)])
    assert context_for(syncs, alone).peer_copies == "off"
    assert context_for(syncs, two).peer_copies == "sync"


def test_a_rank_may_survive_sigterm_where_the_launcher_ends_it_otherwise() -> None:
    assert environment.HOLDS_TERMINATION not in rank_environment({}, CONTEXT)
    found = rank_environment({}, replace(CONTEXT, holds_termination=True))
    assert found[environment.HOLDS_TERMINATION] == "1"


def test_a_rank_never_learns_where_redis_is() -> None:
    secrets = dict.fromkeys(environment.NEVER_FOR_RANKS, "secret") | {environment.CLAIMED: "1:2"}
    assert "secret" not in rank_environment(secrets, CONTEXT).values()
    assert environment.CLAIMED not in rank_environment(secrets, CONTEXT)


def test_the_hooks_come_first_on_the_python_path_and_only_once() -> None:
    first = rank_environment({"PYTHONPATH": "/mine:/yours"}, CONTEXT)
    assert first["PYTHONPATH"] == "/hooks:/mine:/yours"
    assert rank_environment(first, CONTEXT)["PYTHONPATH"] == "/hooks:/mine:/yours"
    assert rank_environment({}, CONTEXT)["PYTHONPATH"] == "/hooks"


def test_the_shared_store_of_torch_is_off_unless_somebody_chose_otherwise() -> None:
    name = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
    assert rank_environment({}, CONTEXT)[name] == "1"
    assert rank_environment({name: "0"}, CONTEXT)[name] == "0"


def test_a_rank_is_told_which_batches_to_pass_over_as_its_hooks_read_it() -> None:
    plan = Plan(4, 8, "running", skips=[BatchSkip(40, 20), BatchSkip(90, 5)])
    found = rank_environment({}, context_for(CONTEXT, plan))
    assert parse_skips(found[environment.SKIPS], first=41) == {90: 5}
    assert parse_skips(found[environment.SKIPS], first=40) == {40: 20, 90: 5}
    assert environment.SKIPS not in rank_environment({}, CONTEXT)
