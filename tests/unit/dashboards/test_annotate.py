from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from tests.extras import package
from tests.grafana_server import FakeGrafana

from holdfast_sidecar.incidents.storage import RECORD
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.plan import Incident

package("grafana_client")

Holdfast = Callable[..., Result]
AT = 1_700_000_000.0


def incident(name: str, recovered_unix_s: float = AT + 30) -> Incident:
    return Incident(
        name,
        attempt=0,
        cause="crash",
        culprit_node="b",
        since_unix_s=AT,
        detected_unix_s=AT + 1,
        decided="restart",
        ended_unix_s=AT + 2,
        recovered_unix_s=recovered_unix_s,
    )


def keep_incidents(state: Path, incidents: list[Incident]) -> None:
    """As the sidecar of node `a` leaves them."""
    for one in incidents:
        path = state / "a" / "incidents" / one.identifier / RECORD
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(encode(one))


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job that is gone; this machine kept what befell it."""
    state = tmp_path / "state" / "holdfast" / "chargpt"
    state.mkdir(parents=True)
    return state


def test_incidents_are_marked_once_and_brought_up_to_date(
    holdfast: Holdfast, grafana: FakeGrafana, job: Path
) -> None:
    keep_incidents(job, [incident("a1"), incident("b2", recovered_unix_s=0.0)])
    first = holdfast("annotate", "--grafana", grafana.url, "--job", "chargpt")
    assert first.exit_code == 0, first.output
    assert "2 incidents marked, 0 brought up to date, 0 as they were" in first.stdout
    keep_incidents(job, [incident("a1"), incident("b2", recovered_unix_s=AT + 60)])
    second = holdfast("annotate", "--grafana", grafana.url, "--job", "chargpt")
    assert "0 incidents marked, 1 brought up to date, 1 as they were" in second.stdout
    assert [mark["timeEnd"] for mark in grafana.marks.values()] == [
        1_700_000_030_000,
        1_700_000_060_000,
    ]
    before = len(grafana.changes)
    holdfast("annotate", "--grafana", grafana.url, "--job", "chargpt")
    assert grafana.changes[before:] == []


def test_a_dry_run_marks_nothing(holdfast: Holdfast, grafana: FakeGrafana, job: Path) -> None:
    keep_incidents(job, [incident("a1")])
    result = holdfast("annotate", "--grafana", grafana.url, "--job", "chargpt", "--dry-run")
    assert "1 incidents would be marked" in result.stdout
    assert grafana.marks == {}


def test_a_job_that_nobody_knows_is_one_line_and_exit_2(
    holdfast: Holdfast, grafana: FakeGrafana
) -> None:
    result = holdfast("annotate", "--grafana", grafana.url, "--job", "nobody")
    assert result.exit_code == 2
    assert "no job 'nobody' of yours runs here" in result.stderr
    assert result.stderr.count("\n") == 1
    assert grafana.asked == []
