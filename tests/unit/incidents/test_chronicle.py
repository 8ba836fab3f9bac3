import os
from dataclasses import replace
from pathlib import Path

from holdfast_sidecar.config.paths import Paths
from holdfast_sidecar.incidents.storage import IncidentStore, newest_job, read_incidents
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.plan import Incident


def chronicle(root: Path, job: str = "j", node: str = "a") -> IncidentStore:
    return IncidentStore(Paths(shm=root / "shm", state=root / job / node))


def incident(identifier: str, detected: float, recovered: float = 0.0) -> Incident:
    return Incident(identifier, 0, "crash", detected_unix_s=detected, recovered_unix_s=recovered)


def test_what_changed_is_written_and_nothing_else(tmp_path: Path) -> None:
    kept = chronicle(tmp_path)
    first = {"x": encode(incident("x", 1.0))}
    assert kept.keep(first)
    (tmp_path / "j/a/incidents/x/incident.json").unlink()
    assert not kept.keep(first)
    assert read_incidents(tmp_path / "j") == []
    assert kept.keep({"x": encode(incident("x", 1.0, recovered=2.0))})
    assert read_incidents(tmp_path / "j") == [incident("x", 1.0, recovered=2.0)]


def test_an_identifier_off_the_wire_can_not_leave_its_directory(tmp_path: Path) -> None:
    kept = chronicle(tmp_path)
    assert not kept.keep({"../../../evil": encode(incident("x", 1.0)), "": "", "a/b": ""})
    assert list(tmp_path.rglob("*")) == []


def test_only_the_newest_incidents_and_attempts_stay_on_the_disk(tmp_path: Path) -> None:
    kept = chronicle(tmp_path)
    node = tmp_path / "j" / "a"
    for number in range(30):
        attempt = node / "evidence" / f"attempt-{number}"
        attempt.mkdir(parents=True)
        os.utime(attempt, (number, number))
    for number in range(30):
        kept.keep({f"i{number}": encode(incident(f"i{number}", 100.0 + number))})
    stay = sorted(directory.name for directory in (node / "incidents").iterdir())
    assert stay == [f"i{number}" for number in range(10, 30)]
    attempts = {directory.name for directory in (node / "evidence").iterdir()}
    assert attempts == {f"attempt-{number}" for number in range(25, 30)}


def test_what_was_only_seen_does_not_take_the_place_of_what_was_acted_on(tmp_path: Path) -> None:
    kept = chronicle(tmp_path)
    kept.keep({"crash": encode(Incident("crash", 0, "crash", decided="restart"))})
    for number in range(30):
        seen = Incident(f"i{number}", 0, "hang", detected_unix_s=100.0 + number, decided="observe")
        kept.keep({seen.identifier: encode(seen)})
    stay = {directory.name for directory in (tmp_path / "j/a/incidents").iterdir()}
    assert stay == {"crash", *(f"i{number}" for number in range(10, 30))}


def test_a_sidecar_that_starts_again_does_not_trade_evidence_for_old_records(
    tmp_path: Path,
) -> None:
    incidents = {f"i{n}": encode(incident(f"i{n}", 100.0 + n)) for n in range(25)}
    chronicle(tmp_path).keep(incidents)
    root = tmp_path / "j" / "a" / "incidents"
    (root / "i24" / "rank-0.page").touch()
    (root / "fresh").mkdir()
    chronicle(tmp_path).keep(incidents)
    stay = {directory.name for directory in root.iterdir()}
    assert stay == {"fresh", *(f"i{number}" for number in range(6, 25))}
    assert (root / "i24" / "rank-0.page").exists()


def test_the_node_that_knows_most_of_an_incident_is_believed(tmp_path: Path) -> None:
    chronicle(tmp_path, node="a").keep({"x": encode(incident("x", 1.0, recovered=2.0))})
    chronicle(tmp_path, node="b").keep({"x": encode(incident("x", 1.0))})
    chronicle(tmp_path, node="b").keep({"y": encode(incident("y", 0.5)), "z": "torn"})
    assert [one.identifier for one in read_incidents(tmp_path / "j")] == ["y", "x"]
    assert read_incidents(tmp_path / "j")[1].recovered_unix_s == 2.0


def test_the_node_that_heard_what_was_decided_is_believed(tmp_path: Path) -> None:
    open_still = Incident("x", 0, "crash", detected_unix_s=1.0, ended_unix_s=2.0)
    stopped = replace(open_still, decided="stop")
    for node, known in (("a", open_still), ("b", stopped), ("c", open_still)):
        chronicle(tmp_path, node=node).keep({"x": encode(known)})
    assert read_incidents(tmp_path / "j") == [stopped]
    for node, known in (("a", stopped), ("b", open_still), ("c", stopped)):
        chronicle(tmp_path, node=node).keep({"x": encode(known)})
    assert read_incidents(tmp_path / "j") == [stopped]


def test_the_newest_job_is_the_one_with_the_newest_incident(tmp_path: Path) -> None:
    assert newest_job(tmp_path) is None
    chronicle(tmp_path, job="old").keep({"x": encode(incident("x", 1.0))})
    chronicle(tmp_path, job="new").keep({"y": encode(incident("y", 2.0))})
    chronicle(tmp_path, job="older").keep({"z": encode(incident("z", 0.5))})
    assert newest_job(tmp_path) == tmp_path / "new"


RICH = Incident(
    "x",
    3,
    "node_lost",
    "beta",
    confidence=0.95,
    since_unix_s=100.0,
    detected_unix_s=101.4,
    ended_unix_s=102.0,
    evidence=["nothing was heard of it for 1.4 s"],
)
POOR = Incident(
    "x", 3, "node_lost", "beta", since_unix_s=370.0, detected_unix_s=370.0, ended_unix_s=371.0
)


def test_what_is_told_anew_with_less_takes_nothing_away(tmp_path: Path) -> None:
    chronicle(tmp_path).keep({"x": encode(RICH)})
    later = chronicle(tmp_path)
    later.keep({"x": encode(POOR)})
    assert read_incidents(tmp_path / "j") == [RICH]
    recovered = replace(POOR, decided="restart", recovered_unix_s=400.0, evidence=["then: why"])
    later.keep({"x": encode(recovered)})
    assert read_incidents(tmp_path / "j") == [
        replace(
            RICH,
            decided="restart",
            recovered_unix_s=400.0,
            evidence=[*RICH.evidence, "then: why"],
        )
    ]
    assert not later.keep({"x": encode(recovered)})


def test_what_is_known_better_is_written_as_it_is_told(tmp_path: Path) -> None:
    kept = chronicle(tmp_path)
    kept.keep({"x": encode(RICH)})
    unsure = replace(RICH, confidence=0.5, culprit_node="gamma", evidence=["seen since"])
    kept.keep({"x": encode(unsure)})
    assert read_incidents(tmp_path / "j") == [unsure]


def test_what_was_kept_can_be_asked_for(tmp_path: Path) -> None:
    kept = chronicle(tmp_path)
    kept.keep({"x": encode(RICH)})
    assert kept.recall("x") == RICH
    assert kept.recall("y") is None
    assert kept.recall("../incidents/x") is None
