"""How many series a node makes: what one more label costs is seen here first."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families as read_text
from tests.unit.components.gpu.large_node import node_of

from holdfast_sidecar.export.catalogue import CATALOGUE
from holdfast_sidecar.export.exposition import draw, expose
from holdfast_sidecar.export.state import TickState

NODE_BUDGET = 1600
"""Series of a node with 8 GPUs, 8 ranks and 8 RDMA ports that tells everything there is. An
exporter of 90 families for 8 GPUs alone has 1,264; a thousand such nodes are 1.6 million series,
which one Prometheus bears (some 3 kB of memory each)."""

RANK_BUDGET = 170
"""What one more rank brings, with its GPU (some 80) and its port (some 30)."""

JOB_BUDGET = 250
"""Of the whole job, whatever the number of its ranks; a heartbeat and two of blame for each node
come on top."""

OF_THE_JOB = {entry.name for entry in CATALOGUE if entry.leader_only}


def series(shown: TickState) -> int:
    text = expose(draw(shown, "job"))[0].decode()
    return sum(len(family.samples) for family in read_text(text))


def test_a_node_of_eight_stays_within_its_budget() -> None:
    assert 1000 < series(node_of(8, is_leader=False)) <= NODE_BUDGET


def test_one_more_rank_with_its_gpu_stays_within_its_own() -> None:
    more = series(node_of(8, is_leader=False)) - series(node_of(7, is_leader=False))
    assert more <= RANK_BUDGET


def test_the_whole_job_is_told_in_few_series() -> None:
    of_the_job = series(node_of(8)) - series(node_of(8, is_leader=False))
    assert len(OF_THE_JOB) / 2 < of_the_job <= JOB_BUDGET
