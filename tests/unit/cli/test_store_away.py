"""What is said of a job whose store does not answer."""

from __future__ import annotations

import pytest

from holdfast_sidecar.cli.find_job import RankCounts, meanwhile
from holdfast_sidecar.cli.recall import RememberedJob
from holdfast_sidecar.cli.status import remembered_page
from holdfast_sidecar.export.job_record import JobRecord


@pytest.mark.parametrize(
    ("ranks", "says"),
    [
        (RankCounts(True, []), "training goes on, nothing is decided"),
        (RankCounts(True, [2]), "rank 2 has died, nothing is restarted"),
        (RankCounts(True, [2, 3]), "ranks 2, 3 have died, nothing is restarted"),
        (RankCounts(False, [0, 1]), "no rank runs on this machine, nothing is restarted"),
        (RankCounts(False, [0, 1, 2, 3]), "no rank runs on this machine, nothing is restarted"),
        (RankCounts(False, []), "nothing is decided"),
    ],
)
def test_what_its_ranks_here_do(ranks: RankCounts, says: str) -> None:
    assert meanwhile(ranks) == says


def test_what_it_waited_for_is_told() -> None:
    record = JobRecord("waiting", 2, 30, 0, "", "", waits="1 of 2 nodes are here")
    told = remembered_page(RememberedJob("j", record, 5.0, is_over=False), 9.0).splitlines()
    assert told[0].startswith("job j: last known: waiting, attempt 2, ")
    assert "held up     1 of 2 nodes are here" in told
