"""From the end of an attempt to its archive, by what the plan and the incidents say."""

from __future__ import annotations

import dataclasses
import json
import tarfile
from pathlib import Path

import pytest
from tests.unit.pretend_pages import NOBODY, write_page

from holdfast_sidecar.components.gpu.readings import GpuReading
from holdfast_sidecar.components.host.readings import HostReading
from holdfast_sidecar.components.machine import MachineReading
from holdfast_sidecar.components.network.readings import NetworkReading
from holdfast_sidecar.config.paths import Paths
from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.incidents.aftermath import archive_of
from holdfast_sidecar.incidents.bundle import BundleKeeping
from holdfast_sidecar.incidents.collect import EvidenceKeeping
from holdfast_sidecar.ranks.ending import ActionRunner
from holdfast_sidecar.ranks.page import Pages
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.plan import Incident, Plan
from holdfast_sidecar.store.orders import Orders
from holdfast_sidecar.store.protocol import Lease, Section, View

MACHINE = MachineReading(
    HostReading({}, 2, 0.1, 100, 90, 0, 0.0), NetworkReading({}), GpuReading(False), ()
)
ENDED = Plan(0, 1, "ended", incident="i1", cause="crash", culprit_ranks=[0])
RUNNING = Plan(1, 1, "running")
CRASH = Incident("i1", 0, "crash", detected_unix_s=5.0)


def orders(plan: Plan, incident: Incident = CRASH) -> Orders:
    sections = {Section.INCIDENTS: {incident.identifier: encode(incident)}}
    return Orders(plan=plan, view=View(Lease(1, "a/x"), "server", sections))


@pytest.fixture
def keeping(tmp_path: Path) -> BundleKeeping:
    places = Paths(tmp_path / "shm", tmp_path / "state")
    runner = ActionRunner()
    evidence = EvidenceKeeping(places, runner)
    return BundleKeeping("a", places, Settings(), evidence, runner, lambda since_s: ["a line"])


def settle(keeping: BundleKeeping) -> None:
    while keeping._thread is not None and keeping._thread.is_alive():
        keeping._thread.join()


def test_what_keeps_is_added_when_the_job_goes_on_and_packed_when_the_incident_is_over(
    keeping: BundleKeeping, tmp_path: Path
) -> None:
    write_page(tmp_path, pid=NOBODY, start_ticks=1)
    pages = Pages(tmp_path)
    directory = keeping.places.incident("i1")
    keeping.follow(orders(ENDED), MACHINE, pages.refresh())
    settle(keeping)
    assert not directory.exists()
    keeping.follow(orders(RUNNING), MACHINE, [])
    settle(keeping)
    assert json.loads((directory / "decision.json").read_text())["plan"]["cause"] == "crash"
    assert not archive_of(directory).exists()
    assert keeping.bundles == {}
    over = dataclasses.replace(CRASH, recovered_unix_s=9.0)
    keeping.follow(orders(RUNNING, over), MACHINE, [])
    settle(keeping)
    with tarfile.open(archive_of(directory)) as tar:
        assert "i1/decision.json" in tar.getnames()
    assert keeping.bundles["i1"].endswith(f":{archive_of(directory)}")
    before = archive_of(directory).stat().st_mtime_ns
    keeping.follow(orders(RUNNING, over), MACHINE, [])
    settle(keeping)
    assert archive_of(directory).stat().st_mtime_ns == before
    pages.close()


def test_a_sidecar_that_leaves_packs_what_is_open(keeping: BundleKeeping) -> None:
    stopped = dataclasses.replace(ENDED, state="stopped", exit_code=65)
    keeping.follow(orders(stopped), MACHINE, [])
    keeping.conclude(orders(stopped))
    assert archive_of(keeping.places.incident("i1")).exists()


def test_an_end_that_is_nobodys_fault_leaves_nothing(keeping: BundleKeeping) -> None:
    grown = dataclasses.replace(ENDED, cause="grow")
    keeping.follow(orders(grown), MACHINE, [])
    keeping.follow(orders(RUNNING), MACHINE, [])
    keeping.conclude(orders(RUNNING))
    assert not keeping.places.incidents.exists()


def test_a_name_that_is_no_name_is_no_directory(keeping: BundleKeeping) -> None:
    evil = dataclasses.replace(ENDED, incident="../../evil")
    incident = Incident("../../evil", 0, "crash", recovered_unix_s=1.0)
    keeping.follow(orders(evil, incident), MACHINE, [])
    keeping.follow(orders(RUNNING, incident), MACHINE, [])
    keeping.conclude(orders(RUNNING, incident))
    assert not keeping.places.state.exists()


def test_a_sidecar_that_starts_again_packs_what_the_one_before_left(
    keeping: BundleKeeping,
) -> None:
    directory = keeping.places.incident("i1")
    directory.mkdir(parents=True)
    (directory / "aftermath.json").write_text("{}")
    keeping.follow(orders(RUNNING, dataclasses.replace(CRASH, recovered_unix_s=9.0)), MACHINE, [])
    settle(keeping)
    assert archive_of(directory).exists()


def test_without_redis_nothing_is_decided_about_bundles(keeping: BundleKeeping) -> None:
    keeping.follow(Orders(), MACHINE, [])
    keeping.conclude(Orders())
    assert not keeping.places.state.exists()


def test_an_incident_of_which_nothing_was_kept_here_is_not_packed(keeping: BundleKeeping) -> None:
    directory = keeping.places.incident("i1")
    directory.mkdir(parents=True)
    (directory / "incident.json").write_text("{}")
    keeping.follow(orders(RUNNING, dataclasses.replace(CRASH, recovered_unix_s=9.0)), MACHINE, [])
    settle(keeping)
    assert not archive_of(directory).exists()
