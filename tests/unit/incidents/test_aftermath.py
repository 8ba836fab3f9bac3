from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from holdfast_sidecar.components.gpu.readings import GpuReading
from holdfast_sidecar.components.host.readings import CounterHistory, HostReading
from holdfast_sidecar.components.machine import MachineReading
from holdfast_sidecar.components.network.readings import NetworkReading
from holdfast_sidecar.config.paths import Paths
from holdfast_sidecar.config.redaction import REDACTED, Redaction
from holdfast_sidecar.config.settings import EvidenceSettings, RedisSettings, Settings
from holdfast_sidecar.incidents.aftermath import (
    BEFORE_S,
    IncidentContext,
    keep_aftermath,
    with_exits,
)
from holdfast_sidecar.incidents.rank_facts import Output, RankFacts
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.records.reports import AgentReport, Exit, NodeReport, RankReport

SECRET = "s3cr3t-Va1ue"
MACHINE = MachineReading(
    HostReading({}, 2, 0.1, 100, 90, 0, 0.0), NetworkReading({}), GpuReading(False), ()
)
CRASHED = Plan(3, 1, "ended", incident="i1", cause="crash", culprit_ranks=[1])


def agent(*exits: Exit, node: str = "a", attempt: int = 3) -> str:
    report = AgentReport(node, "x", "failed", attempt, 1, 2, "", 1, 1, exits=list(exits))
    return encode(report)


def ended(rank: int, code: int, at: float, message: str = "") -> Exit:
    return Exit(rank, rank, 1, code, at, 0, message)


def dead(rank: int, exit_code: int) -> RankReport:
    return RankReport(rank, rank, 1, 5, "forward", 0.0, 0.1, 0.1, exit_code=exit_code)


@pytest.fixture
def scene(tmp_path: Path) -> IncidentContext:
    """Rank 1 died of a CUDA error that its log tells of; rank 0 lost its peer."""
    logs = []
    for rank in (0, 1):
        log = tmp_path / f"rank-{rank}.log"
        log.write_text("ValueError: of the attempt before\n")
        logs.append((log, log.stat().st_size, (0, rank)))
        with log.open("a") as file:
            file.write(f"step 1; password={SECRET}\n")
            file.write("CUDA error: misaligned address\n" * rank)
    facts = {rank: RankFacts(outputs={"stderr": Output(*logs[rank])}) for rank in (0, 1)}
    places = Paths(shm=tmp_path / "shm", state=tmp_path / "state")
    dumps = places.evidence(3)
    dumps.mkdir(parents=True)
    (dumps / "fatal-local-0.txt").write_text("")
    (dumps / "fatal-local-1.txt").write_text("Fatal Python error: Aborted\n\nThread 0x1:\n")
    places.sidecar_log.write_text(f"redis://:{SECRET}@h\n")
    return IncidentContext(
        plan=CRASHED,
        node="a",
        places=places,
        settings=Settings(redis=RedisSettings(url=f"redis://:{SECRET}@h")),
        facts=facts,
        local_ranks={0: 0, 1: 1},
        last_words={0: "RuntimeError: Connection closed by peer"},
        machine=MACHINE,
        records={
            "agents": {
                "a": agent(ended(0, 1, 10.0, "RuntimeError: gloo"), ended(1, -6, 10.2)),
                "b": agent(ended(2, 1, 10.3, "RuntimeError: gloo"), node="b"),
                "c": agent(ended(7, -9, 1.0), node="c", attempt=2),
                "d": "no record",
            },
            "incidents": {"i1": json.dumps({"why": SECRET})},
        },
        redaction=Redaction(frozenset({SECRET})),
    )


def kernel(since_s: float) -> list[str]:
    return [f"since {since_s:g}", f"token={SECRET}"]


def read(scene: IncidentContext, name: str) -> Any:
    return json.loads((scene.directory / name).read_text())


def test_the_decision_the_machine_the_logs_and_the_versions_are_kept(
    scene: IncidentContext,
) -> None:
    assert keep_aftermath(scene, kernel, 20.0, 1000.0)
    assert not keep_aftermath(scene, kernel, 20.0, 1000.0)
    decision = read(scene, "decision.json")
    assert decision["plan"]["cause"] == "crash"
    assert decision["agents"]["b"]["exits"][0]["rank"] == 2
    assert decision["agents"]["d"] == "no record"
    assert read(scene, "machine.json")["readings"]["host"]["cpus"] == 2
    assert read(scene, "settings.json")["redis"]["url"] == f"redis://{REDACTED}@h"
    assert "packages" in read(scene, "software.json")
    assert (scene.directory / "kernel.log").read_text().startswith(f"since {1000 - BEFORE_S:g}\n")
    assert (scene.directory / "rank-1-stderr.log").read_text().startswith("ValueError")
    assert (scene.directory / "fatal-local-1.txt").exists()
    assert not (scene.directory / "fatal-local-0.txt").exists()


def test_of_the_machine_what_is_so_is_kept_and_not_the_hour_before(scene: IncidentContext) -> None:
    assert MACHINE.host is not None
    earlier = tuple(CounterHistory(at_s, available={"state": 1}) for at_s in range(240))
    host = dataclasses.replace(MACHINE.host, now=CounterHistory(240.0, periods=7), earlier=earlier)
    machine = dataclasses.replace(MACHINE, host=host)
    keep_aftermath(dataclasses.replace(scene, machine=machine), kernel, 20.0, 1000.0)
    told = read(scene, "machine.json")["readings"]["host"]
    assert (told["now"]["periods"], told["earlier"]) == (7, [])


def test_no_secret_gets_into_any_file(scene: IncidentContext) -> None:
    keep_aftermath(scene, kernel, 20.0, 1000.0)
    files = {path.name: path.read_text() for path in scene.directory.iterdir()}
    assert not [name for name, text in files.items() if SECRET in text]
    assert {name for name, text in files.items() if REDACTED in text} >= {
        "kernel.log",
        "sidecar.log",
        "rank-0-stderr.log",
        "decision.json",
    }


def test_of_all_nodes_ranks_the_one_that_failed_first_is_named(scene: IncidentContext) -> None:
    keep_aftermath(scene, kernel, 20.0, 1000.0)
    told = read(scene, "first-error.json")
    assert [one["rank"] for one in told["order"]] == [1, 0, 2]
    assert told["order"][0]["words"] in (
        "CUDA error: misaligned address",
        "Fatal Python error: Aborted",
    )
    assert told["confidence"] == 0.9


def test_a_rank_that_left_while_others_went_on_was_the_first(scene: IncidentContext) -> None:
    exits = (ended(0, 1, 10.0, "RuntimeError: gloo"), ended(1, 0, 10.2))
    left = dataclasses.replace(scene, facts={}, local_ranks={}, records={"agents": {}})
    keep_aftermath(with_exits(left, {"a": agent(*exits)}), kernel, 20.0, 1000.0)
    told = [(one["rank"], one["words"]) for one in read(scene, "first-error.json")["order"]]
    assert told[0] == (1, "left by exit code 0 at step 0 while others went on")
    assert [rank for rank, _ in told] == [1, 0]


def test_exits_that_were_told_later_are_taken_in_and_others_come_from_the_sidecars(
    scene: IncidentContext,
) -> None:
    early = dataclasses.replace(
        scene,
        facts={},
        last_words={},
        records={
            "agents": {"a": agent(), "b": agent(node="b")},
            "nodes": {
                "a": encode(
                    NodeReport("a", "x", 1, 0, 1, 3, True, [dead(0, -9), dead(1, -6), dead(5, -15)])
                ),
                "b": encode(NodeReport("b", "x", 1, 0, 1, 2, True, [dead(2, -11)])),
            },
        },
    )
    late = {"a": agent(ended(0, -9, 10.0)), "b": agent(ended(2, -11, 10.0), attempt=4)}
    keep_aftermath(with_exits(early, late), kernel, 20.0, 1000.0)
    signs = read(scene, "first-error.json")["signs"]
    assert [(one["rank"], one["words"], one["at_unix_s"]) for one in signs] == [
        (0, "ended by SIGKILL", 10.0),
        (1, "ended by SIGABRT", None),
        (1, "Fatal Python error: Aborted", None),
    ]


def test_after_a_hang_who_was_killed_by_us_or_raised_for_it_did_not_fail_first(
    scene: IncidentContext,
) -> None:
    hung = dataclasses.replace(scene, plan=dataclasses.replace(CRASHED, cause="hang"))
    keep_aftermath(hung, kernel, 20.0, 1000.0)
    assert [one["rank"] for one in read(hung, "first-error.json")["order"]] == [1]


def test_a_log_that_may_not_be_read_says_why(scene: IncidentContext) -> None:
    def refused(since_s: float) -> list[str]:
        raise PermissionError(1, "Operation not permitted")

    keep_aftermath(scene, refused, 20.0, 1000.0)
    assert "Operation not permitted" in (scene.directory / "kernel.log").read_text()


def test_ranks_that_share_a_file_share_its_copy(scene: IncidentContext) -> None:
    one = scene.facts[1].outputs["stderr"]
    facts = {rank: RankFacts(outputs={"stdout": one, "stderr": one}) for rank in (0, 1)}
    keep_aftermath(dataclasses.replace(scene, facts=facts), kernel, 20.0, 1000.0)
    assert [path.name for path in sorted(scene.directory.glob("*output*"))] == ["output-0.log"]
    alone = dataclasses.replace(
        scene, plan=dataclasses.replace(CRASHED, incident="i2"), facts={1: facts[1]}
    )
    keep_aftermath(alone, kernel, 20.0, 1000.0)
    assert [path.name for path in alone.directory.glob("*output*")] == ["rank-1-output.log"]


def test_what_exceeds_the_share_is_cut_and_named(scene: IncidentContext) -> None:
    with (scene.places.state.parent / "rank-1.log").open("a") as log:
        log.writelines(f"line {number}\n" for number in range(100_000))
    small = EvidenceSettings(most_bytes=100_000, log_tail_bytes=10**6)
    settings = dataclasses.replace(scene.settings, evidence=small)
    keep_aftermath(dataclasses.replace(scene, settings=settings), kernel, 20.0, 1000.0)
    cut = read(scene, "aftermath.json")["cut"]
    assert "rank-1-stderr.log" in cut
    kept = (scene.directory / "rank-1-stderr.log").read_text()
    assert kept.endswith("line 99999\n")
    assert read(scene, "first-error.json")["order"]
    total = sum(path.stat().st_size for path in scene.directory.iterdir())
    assert total <= 100_000 + 5000
