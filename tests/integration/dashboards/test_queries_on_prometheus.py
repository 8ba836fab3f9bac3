"""Every query of every dashboard is asked of a real Prometheus that has every series there is."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from functools import partial

import pytest
from tests.integration.dashboards.catalogue_data import STEP_S, openmetrics
from tests.servers import free_port, required, wait_until
from tests.unit.dashboards.boards import UIDS, Json, as_promql, load, panels, questions

from holdfast_sidecar.linux.process import die_with

pytestmark = pytest.mark.prometheus


class Asked:
    """A Prometheus with made-up data, and the moment at which that ends."""

    def __init__(self, port: int, end_unix_s: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.end_unix_s = end_unix_s

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def now(self, expression: str) -> list[Json]:
        return self._ask("query", query=expression, time=str(self.end_unix_s))

    def over_time(self, expression: str) -> list[Json]:
        start, end = self.end_unix_s - 600, self.end_unix_s
        return self._ask(
            "query_range", query=expression, start=str(start), end=str(end), step=str(STEP_S)
        )

    def _ask(self, route: str, **query: str) -> list[Json]:
        url = f"{self.url}/api/v1/{route}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=20) as answer:
            found: list[Json] = json.load(answer)["data"]["result"]
        return found


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    folder = tmp_path_factory.mktemp("prometheus")
    program, promtool = required("prometheus"), required("promtool")
    end_unix_s = int(time.time())
    (folder / "series.om").write_text("\n".join(openmetrics(end_unix_s)) + "\n")
    making = [promtool, "tsdb", "create-blocks-from", "openmetrics", "series.om", "data"]
    subprocess.run(making, cwd=folder, check=True, capture_output=True, timeout=60)
    (folder / "prometheus.yml").write_text("{}\n")
    asked = Asked(free_port(), end_unix_s)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                program,
                "--config.file=prometheus.yml",
                "--storage.tsdb.path=data",
                f"--web.listen-address={asked.url.removeprefix('http://')}",
            ],
            cwd=folder,
            stdout=log,
            stderr=log,
            preexec_fn=partial(die_with, os.getpid()),
        )
    try:
        wait_until(asked.answers, "Prometheus answers", timeout_s=30)
        yield asked
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("uid", UIDS)
def test_every_query_of_a_dashboard_finds_something(prometheus: Asked, uid: str) -> None:
    empty = []
    for one in questions(load(uid)):
        ask = prometheus.now if one.is_instant else prometheus.over_time
        if not ask(one.expression):
            empty.append(f"{one.where}: {one.expression}")
    assert empty == []


def test_a_query_of_nothing_finds_nothing(prometheus: Asked) -> None:
    assert prometheus.now('holdfast_job_step{run="another"}') == []


def test_a_culprit_is_the_slowest_row_and_waits_least(prometheus: Asked) -> None:
    """Rank 3 takes longest by itself in the made-up data, and all steps take the same."""
    slow, waits = (
        next(
            panel["targets"][0]["expr"]
            for panel in panels(load("holdfast-ranks"))
            if panel["title"] == title
        )
        for title in ("Slow: ranks", "Waiting: ranks")
    )
    slowness = {
        row["metric"]["rank"]: row["values"] for row in prometheus.over_time(as_promql(slow))
    }
    waiting = {
        row["metric"]["rank"]: row["values"] for row in prometheus.over_time(as_promql(waits))
    }
    assert max(slowness, key=lambda rank: float(slowness[rank][-1][1])) == "3"
    assert min(waiting, key=lambda rank: float(waiting[rank][-1][1])) == "3"
    (chosen,) = (as_promql(slow).replace("32", "1"),)
    assert [row["metric"]["rank"] for row in prometheus.over_time(chosen)] == ["3"]
