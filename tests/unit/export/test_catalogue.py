from __future__ import annotations

import re
from pathlib import Path

import pytest
from scripts import reference

from holdfast_sidecar.export.catalogue import CATALOGUE
from holdfast_sidecar.records.metric import MetricSpec

ROOT = Path(__file__).parents[3]
BASE_UNITS = {"", "seconds", "bytes", "ratio", "celsius", "watts", "hertz", "joules"}


def test_names_are_unique_to_openmetrics_too_which_has_no_total_in_a_family_s_name() -> None:
    families = [entry.name.removesuffix("_total") for entry in CATALOGUE]
    assert len(families) == len(set(families))


def test_every_section_of_the_reference_is_the_catalogue() -> None:
    listed = [entry for _, entries in reference.SECTIONS for entry in entries]
    assert sorted(listed, key=lambda e: e.name) == sorted(CATALOGUE, key=lambda e: e.name)


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda entry: entry.name)
def test_an_entry_keeps_the_naming_rules(entry: MetricSpec) -> None:
    assert re.fullmatch(r"holdfast_[a-z][a-z0-9_]*", entry.name)
    assert entry.name.endswith("_total") == (entry.kind == "counter")
    assert entry.unit in BASE_UNITS
    if entry.unit:
        assert entry.unit in entry.name
    assert "_age" not in entry.name
    assert entry.labels[0] == "run"
    assert entry.help.endswith(".")


def test_identity_stands_on_info_metrics_alone() -> None:
    identity = {"uuid", "serial", "model", "driver", "pci", "version"}
    for entry in CATALOGUE:
        if identity & set(entry.labels):
            assert entry.name.endswith("_info")


BLAMING = {
    "holdfast_job_lost_work_seconds_total",
    "holdfast_job_lost_work_gpu_seconds_total",
    "holdfast_job_open_incident_info",
}
"""Their node is the one to blame, whoever tells of it."""


def test_job_wide_metrics_do_not_say_who_tells_them() -> None:
    for entry in CATALOGUE:
        if entry.name.startswith(("holdfast_job_", "holdfast_checkpoint")):
            assert entry.leader_only
            assert ("node" in entry.labels) == (entry.name in BLAMING)


def test_the_reference_in_the_docs_is_current() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text() == reference.metrics(), (
        "run python -m scripts.reference"
    )
