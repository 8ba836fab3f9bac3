"""Rules and dashboards against the catalogue."""

from __future__ import annotations

import pytest

from holdfast_sidecar.export.catalogue import CATALOGUE
from holdfast_sidecar.export.promql import BY_NAME, known_labels, names, take_apart, troubles

FINE = [
    "holdfast_job_step",
    'time() - max by (run, node) (holdfast_node_last_heartbeat_timestamp_seconds{run="a"}) > 30',
    'up{job="holdfast-sidecar"} == 0',
    "sum by (cluster, run) (holdfast_node_is_leader) != 1",
    "increase(holdfast_job_restarts_total[1h]) >= 3 unless "
    'increase(holdfast_checkpoint_saves_total{result="complete"}[1h]) > 0',
    'sum(rate(holdfast_rank_phase_seconds_total{run=~"$run", node=~"$node"}[$__rate_interval]))'
    " by (phase)",
    "rate(holdfast_checkpoint_duration_seconds_sum[5m])"
    " / rate(holdfast_checkpoint_duration_seconds_count[5m])",
    "holdfast_rank_step_seconds / on (run) group_left () avg by (run) (holdfast_rank_step_seconds)",
    "(holdfast_gpu_info) * on (node, gpu) group_left (uuid) holdfast_gpu_info",
    "absent(holdfast_job_incidents_total)",
    "topk(${top:raw}, holdfast_rank_slowdown_ratio{cause!='link'} offset 5m @ end())",
    'max_over_time((holdfast_job_state{state="running"} == 1)[10m:1m])',
    "changes(holdfast_job_restarts_total[[[interval]]])",
    "# a comment with holdfast_nothing in it\nholdfast_job_step # and holdfast_nothing here",
    'label_replace(holdfast_job_step, "who", "$1", "run", "(.*)") * on (who) group_left () up',
    'count_values without (instance) ("version", holdfast_sidecar_info)',
    "count(holdfast_actions_total) by (node, action)",
    "holdfast_host_memory_available_bytes{`run`='x'} > bool 1e9 and on (run, node) vector(Inf)",
    "",
    "1 + 2 * -0x1f",
]


@pytest.mark.parametrize("expression", FINE)
def test_what_fits_is_no_trouble(expression: str) -> None:
    assert troubles(expression) == []


@pytest.mark.parametrize(
    ("expression", "kind", "says"),
    [
        ("holdfast_job_stpe", "unknown", "holdfast_job_stpe is not in the catalogue"),
        ("node_load1 + holdfast_job_step", "unknown", "node_load1 is not"),
        ('{__name__="holdfast_nope"}', "unknown", "holdfast_nope is not"),
        ('{__name__=~"holdfast_job_step|holdfast_nope"}', "unknown", "holdfast_nope is not"),
        ("holdfast_checkpoint_duration_seconds", "unknown", "is not in the catalogue"),
        ('holdfast_job_step{rank="1"}', "label", "holdfast_job_step has no label rank"),
        ('holdfast_job_step{node="a"}', "label", "holdfast_job_step has no label node"),
        ('holdfast_job_step{instance="a"}', "label", "has no label instance"),
        ("sum by (gpu) (holdfast_rank_step)", "label", "by (gpu): none of these"),
        ("sum(holdfast_rank_step) by (gpu)", "label", "by (gpu): none of these"),
        ("holdfast_rank_step * on (run, gpu) holdfast_rank_up", "label", "on (gpu): none"),
        ("holdfast_job_restarts_total > 3", "bare_counter", "take its rate() or increase()"),
        ("deriv(holdfast_rank_gc_seconds_total[5m])", "bare_counter", "take its rate()"),
        ("max_over_time(holdfast_job_restarts_total[5m])", "bare_counter", "take its rate()"),
        ("holdfast_checkpoint_duration_seconds_sum", "bare_counter", "take its rate()"),
        ("rate(holdfast_job_step[5m])", "rate_of_gauge", "is a gauge: rate() is for counters"),
    ],
)
def test_what_does_not_fit_is_named(expression: str, kind: str, says: str) -> None:
    (found,) = troubles(expression)
    assert found.kind == kind
    assert says in found.words


def test_recorded_series_and_others_are_known_by_what_is_given() -> None:
    expression = 'run:goodput:ratio1h{run="a"} < 0.9 and foo_up == 1'
    assert [one.name for one in troubles(expression)] == ["run:goodput:ratio1h", "foo_up"]
    assert not troubles(expression, recorded=["run:goodput:ratio1h"], others=["foo_up"])


def test_labels_of_what_is_recorded_are_not_judged() -> None:
    assert not troubles("sum by (anything) (a:b:c)", recorded=["a:b:c"])


@pytest.mark.parametrize(
    "text", ["(((", "holdfast_job_step{", 'x{a="', "}])", "sum by (", "$", "@é"]
)
def test_what_nobody_can_read_is_passed_over(text: str) -> None:
    names(text)
    troubles(text)


def test_all_names_are_found_wherever_they_stand() -> None:
    found = names('a + on (b) c{d="e"}[5m] / sum by (f) (g:h) > h{__name__=~"i|j"} or k offset 1d')
    assert found == {"a", "c", "g:h", "h", "i", "j", "k"}


def test_what_a_selector_stands_inside_is_known_from_near_to_far() -> None:
    (one,) = take_apart("sum by (x) (rate(holdfast_job_step[5m]))").selectors
    assert one.inside == ("rate", "sum")


def test_every_metric_of_the_catalogue_is_known_with_its_labels() -> None:
    for entry in CATALOGUE:
        matchers = ", ".join(f'{label}="x"' for label in sorted(known_labels(entry) - {"__name__"}))
        ends = ["_sum", "_count"] if entry.kind == "summary" else [""]
        for name in (entry.name + end for end in ends):
            assert BY_NAME[name] is entry
            asked = f"{name}{{{matchers}}}"
            whole = asked if entry.kind == "gauge" else f"rate({asked}[5m])"
            assert troubles(whole) == []


def test_series_of_the_job_have_no_labels_of_the_target() -> None:
    assert known_labels(BY_NAME["holdfast_job_step"]) == {"run", "job", "cluster", "__name__"}
    heartbeat = known_labels(BY_NAME["holdfast_node_last_heartbeat_timestamp_seconds"])
    assert "node" in heartbeat
    assert "instance" not in heartbeat
    assert {"instance", "node"} <= known_labels(BY_NAME["holdfast_rank_step"])
