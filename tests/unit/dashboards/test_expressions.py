from __future__ import annotations

import re

import pytest
from tests.extras import package
from tests.unit.dashboards.boards import UIDS, as_promql, expressions, load

from holdfast_sidecar.export.catalogue import CATALOGUE
from holdfast_sidecar.export.promql import names, troubles

promql_parser = package("promql_parser")

OF_THE_JOB = {entry.name for entry in CATALOGUE if entry.leader_only and "node" not in entry.labels}


@pytest.mark.parametrize("uid", UIDS)
def test_every_expression_is_valid(uid: str) -> None:
    for where, expression in expressions(load(uid)):
        try:
            promql_parser.parse(as_promql(expression))
        except ValueError as error:
            pytest.fail(f"{where}: {error}\n{expression}")


def test_one_that_is_not_valid_is_found() -> None:
    with pytest.raises(ValueError, match=r"unexpected|invalid|expected"):
        promql_parser.parse(as_promql("sum by (run (up[$__rate_interval]))"))


@pytest.mark.parametrize("uid", UIDS)
def test_every_expression_names_only_what_the_catalogue_has(uid: str) -> None:
    found = [
        f"{where}: {trouble.words}"
        for where, expression in expressions(load(uid))
        for trouble in troubles(expression)
    ]
    assert found == []


@pytest.mark.parametrize("uid", UIDS)
def test_the_jobs_own_series_are_not_asked_by_node(uid: str) -> None:
    """They have none: the answer would be empty."""
    asked = [
        f"{where}: {name}"
        for where, expression in expressions(load(uid))
        for name, matchers in re.findall(r"\b(holdfast_\w+)\{([^}]*)\}", expression)
        if name in OF_THE_JOB and "node=~" in matchers
    ]
    assert asked == []


def test_what_is_most_worth_knowing_is_shown_somewhere() -> None:
    shown = {name for uid in UIDS for _, expr in expressions(load(uid)) for name in names(expr)}
    assert {
        "holdfast_job_state",
        "holdfast_job_time_seconds_total",
        "holdfast_job_lost_work_gpu_seconds_total",
        "holdfast_rank_own_seconds",
        "holdfast_rank_phase_id",
        "holdfast_gpu_xid_last_timestamp_seconds",
        "holdfast_rdma_port_state_id",
        "holdfast_checkpoint_last_durable_timestamp_seconds",
        "holdfast_job_recovery_phase_seconds_sum",
        "holdfast_store_up",
    } <= shown
