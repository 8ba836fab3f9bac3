"""Where the time went and what failures cost, as metrics."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.export.picture import PLAN, VIEW, picture
from tests.unit.export.test_page import ended

from holdfast_sidecar.config.settings import CostSettings, PolicySettings
from holdfast_sidecar.export.exposition import draw
from holdfast_sidecar.export.metrics import CAUSES
from holdfast_sidecar.export.state import TickState
from holdfast_sidecar.performance.metrics import STOPPED_FOR_S, budget_left, is_open
from holdfast_sidecar.records.account import Category
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.plan import Incident, Quarantine
from holdfast_sidecar.store.protocol import Section

NEW = replace(
    VIEW,
    sections={
        section: fields
        for section, fields in VIEW.sections.items()
        if section not in (Section.ACCOUNT, Section.INCIDENTS)
    },
)


def told(shown: TickState, name: str) -> dict[tuple[str, ...], float]:
    """Labels but `run` -> value."""
    return {
        tuple(value for label, value in sample.labels.items() if label != "run"): sample.value
        for sample in draw(shown, "job")
        if sample.name == f"holdfast_{name}"
    }


def fresh() -> TickState:
    return replace(picture(), orders=replace(picture().orders, view=NEW))


def test_every_category_is_told_from_the_start() -> None:
    for name in ("job_time_seconds_total", "job_gpu_time_seconds_total"):
        assert told(fresh(), name) == {(category.value,): 0.0 for category in Category}
    assert told(picture(), "job_time_seconds_total")[("productive",)] == 170.0
    assert told(picture(), "job_gpu_time_seconds_total")[("productive",)] == 340.0


def test_lost_work_is_told_by_cause_and_culprit_and_from_zero_for_the_usual_causes() -> None:
    lost = told(picture(), "job_lost_work_seconds_total")
    assert lost[("hang", "b")] == 2.5
    assert told(picture(), "job_lost_work_gpu_seconds_total")[("hang", "b")] == 5.0
    assert {key for key, value in lost.items() if value == 0} == {(c, "") for c in CAUSES}
    assert told(fresh(), "job_lost_work_seconds_total") == dict.fromkeys(
        ((cause, "") for cause in CAUSES), 0.0
    )


def test_shares_are_of_all_time_but_waiting_for_nodes() -> None:
    (goodput,) = told(picture(), "job_goodput_ratio").values()
    assert goodput == pytest.approx(167.5 / 198.5)
    assert told(fresh(), "job_goodput_ratio") == {}
    assert told(fresh(), "job_mtbf_seconds") == {}


def test_a_price_is_told_where_there_is_one() -> None:
    assert told(picture(), "job_gpu_hour_price") == {("EUR",): 2.5}
    free = replace(picture(), price=CostSettings())
    assert told(free, "job_gpu_hour_price") == {}


def test_nodes_that_a_person_took_out_are_named_once_no_ranks_run_there() -> None:
    outside = [
        Quarantine("m-b", "b", 0.0, 2000.0, by="ops", is_drained=True),
        Quarantine("m-c", "c", 0.0, 2000.0, by="ops", is_drained=True),
        Quarantine("m-d", "d", 0.0, 2000.0),
    ]
    plan = {"current": encode(replace(PLAN, outside=outside))}
    view = replace(VIEW, sections={**VIEW.sections, Section.PLAN: plan})
    shown = replace(picture(), orders=replace(picture().orders, view=view))
    assert told(shown, "node_drained") == {("c",): 1.0}, "b still trains, d was blamed"


def test_the_exit_code_is_absent_while_it_runs() -> None:
    assert told(picture(), "job_exit_code") == {}
    assert told(ended(), "job_exit_code") == {(): 1.0}


def test_restarts_are_parted_into_their_phases() -> None:
    parts = told(picture(), "job_recovery_phase_seconds")
    assert parts == {
        ("detect",): 1.0,
        ("drain",): 0.5,
        ("rendezvous",): 1.5,
        ("restore",): 0.3,
        ("first_step",): 0.2,
    }


def test_an_open_incident_names_cause_and_culprit() -> None:
    assert told(picture(), "job_open_incident_info") == {
        ("", "crash", "i2", ""): 1.0,
        ("b", "gpu", "i3", ""): 1.0,
    }


def test_an_incident_is_open_until_it_is_over_or_the_job_was_stopped_over_it_long_ago() -> None:
    incident = Incident("i", 0, "crash", detected_unix_s=100.0, decided="restart")
    assert is_open(incident, 1e6)
    assert not is_open(replace(incident, recovered_unix_s=101.0), 102.0)
    stopped = replace(incident, decided="stop", ended_unix_s=100.0)
    assert is_open(stopped, 101.0)
    assert not is_open(stopped, 100.0 + STOPPED_FOR_S)
    assert not is_open(replace(incident, decided="observe", ended_unix_s=101.0), 102.0)


def test_the_budget_is_that_of_the_cause_with_fewest_restarts_left_and_of_the_cap() -> None:
    policy = PolicySettings(budget=5, budget_window_s=100.0)
    causes = ["crash", "crash", "hang", "grow", "grow", "grow"]
    known = [Incident("i", 0, one, detected_unix_s=950.0, decided="restart") for one in causes]
    old = Incident("i", 0, "crash", detected_unix_s=800.0, decided="restart")
    assert budget_left([*known, old], 7, -1, policy, 1000.0) == 3
    assert budget_left(known, 7, 8, policy, 1000.0) == 1
    assert budget_left(known * 5, 7, -1, policy, 1000.0) == 0


def test_a_restart_that_nobody_waits_for_any_more_is_not_open() -> None:
    """A run that ended before its restart was over, and the next one under the same name: either
    would page for a restart that does not get to its first step."""
    left = Incident("i", 0, "crash", detected_unix_s=900.0, decided="restart")

    def named(state: str, began_unix_s: float) -> set[str]:
        plan = replace(PLAN, state=state, began_unix_s=began_unix_s)
        sections = {
            **NEW.sections,
            Section.PLAN: {"current": encode(plan)},
            Section.INCIDENTS: {"i": encode(left)},
        }
        orders = replace(picture().orders, view=replace(NEW, sections=sections))
        shown = replace(picture(), orders=orders)
        return {labels[2] for labels in told(shown, "job_open_incident_info")}

    assert named("running", 100.0) == {"i"}
    assert named("stopped", 100.0) == set()
    assert named("running", 2000.0) == set()
