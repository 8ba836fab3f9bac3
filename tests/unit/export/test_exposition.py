"""The page as others read it: the text formats, and which labels Prometheus makes of it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text
from prometheus_client.samples import Sample
from tests.servers import required
from tests.unit.export.picture import picture

from holdfast_sidecar.export.catalogue import CATALOGUE
from holdfast_sidecar.export.exposition import draw, expose, told_labels
from holdfast_sidecar.records.metric import MetricSpec

GOLDEN = Path(__file__).with_name("golden.prom")
PROMETHEUS_ASKS = (
    "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;"
    "q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
"""The Accept header of Prometheus 2.42."""

OF_THIS_PROCESS = {"holdfast_sidecar_cpu_seconds_total", "holdfast_sidecar_resident_memory_bytes"}

JOB_WIDE = [entry for entry in CATALOGUE if entry.leader_only]


def page(accept: str = "") -> tuple[str, str]:
    """Without what is measured of this very process."""
    samples = [s for s in draw(picture(), "job") if s.name not in OF_THIS_PROCESS]
    body, content_type = expose(samples, accept)
    return body.decode(), content_type


def samples_of(entry: MetricSpec) -> list[Sample]:
    ends = ("_sum", "_count") if entry.kind == "summary" else ("",)
    names = {entry.name + end for end in ends}
    return [s for one in read_text(page()[0]) for s in one.samples if s.name in names]


def attached(scraped: dict[str, str], target: dict[str, str]) -> dict[str, str]:
    """The labels that a series has on a server that scraped it with `honor_labels: true`."""
    merged = {**target, **scraped}
    return {name: value for name, value in merged.items() if value}


@pytest.mark.parametrize("entry", JOB_WIDE, ids=lambda entry: entry.name)
def test_whoever_leads_tells_the_same_series_of_the_job(entry: MetricSpec) -> None:
    for sample in samples_of(entry):
        assert sample.labels["instance"] == ""
        on_server = [
            attached(dict(sample.labels), {"instance": where, "node": node, "run": "job"})
            for where, node in (("10.0.0.1:9750", "a"), ("10.0.0.2:9750", "b"))
        ]
        assert on_server[0] == on_server[1]
        assert on_server[0].keys() <= {*entry.labels}


def test_what_a_node_tells_of_itself_has_its_own_label_and_the_target_s_instance() -> None:
    for entry in CATALOGUE:
        if not entry.leader_only:
            assert told_labels(entry) == entry.labels
            assert "node" in entry.labels


def test_a_label_that_is_told_empty_stands_in_the_text_as_prometheus_reads_it() -> None:
    assert 'holdfast_job_step{instance="",node="",run="job"} 44.0\n' in page()[0]
    line = 'holdfast_node_last_heartbeat_timestamp_seconds{instance="",node="a",run="job"}'
    assert line in page()[0]
    assert 'holdfast_job_step{instance="",node="",run="job"} 44.0\n' in page(PROMETHEUS_ASKS)[0]


def test_openmetrics_is_told_to_those_who_ask_for_it() -> None:
    text, content_type = page(PROMETHEUS_ASKS)
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")
    families = {family.name: family for family in read_openmetrics(text)}
    assert families["holdfast_sidecar_ticks"].type == "counter"
    assert families["holdfast_checkpoint_duration_seconds"].type == "summary"
    assert families["holdfast_host_memory_available_bytes"].unit == "bytes"
    plain = {s.name for family in read_text(page()[0]) for s in family.samples}
    assert {s.name for family in families.values() for s in family.samples} == plain


@pytest.mark.parametrize("accept", ["", PROMETHEUS_ASKS])
def test_no_series_says_when_it_was_made(accept: str) -> None:
    assert not re.search(r"_created\b", page(accept)[0])


@pytest.mark.parametrize("accept", ["", "*/*", "text/plain", "text/html", "nonsense;;=,", "\x00"])
def test_whatever_else_is_asked_for_gets_the_plain_text(accept: str) -> None:
    text, content_type = page(accept)
    assert content_type.startswith("text/plain; version=0.0.4")
    assert text == page()[0]


@pytest.mark.prometheus
def test_promtool_finds_nothing_to_say_about_the_page() -> None:
    promtool = required("promtool")
    text = GOLDEN.read_text().replace(" measured\n", " 1.0\n")
    done = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=20
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.prometheus
def test_promtool_would_find_a_name_that_is_wrong() -> None:
    promtool = required("promtool")
    wrong = "# HELP holdfast_wait_ms Waits.\n# TYPE holdfast_wait_ms gauge\nholdfast_wait_ms 1\n"
    done = subprocess.run(
        [promtool, "check", "metrics"], input=wrong, capture_output=True, text=True, timeout=20
    )
    assert done.returncode == 3
