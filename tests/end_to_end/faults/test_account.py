"""The account of a real job that loses a rank and its leader's sidecar: where its time went."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from tests.end_to_end.faults.job import Job
from tests.servers import Server

from holdfast_sidecar.records.account import CLOSED, MICRO, Account, Category, parse_account
from holdfast_sidecar.store.protocol import Section

pytestmark = pytest.mark.torch

TIME = re.compile(r'^holdfast_job_time_seconds_total\{.*?category="(\w+)".*?\} (\S+)$', re.M)

STEPS, STEP_S = 220, 0.03


def test_through_a_killed_rank_and_a_killed_leader_the_sum_is_the_wall_clock(
    make_job: Callable[..., Job], lasting_server: Server
) -> None:
    job = make_job(lasting_server, "account")
    began_s = time.time()
    options = ["--nnodes=2", f"--checkpoint-dir={job.folder}/c", "--set=checkpoint.every_steps=25"]
    for node in "ab":
        job.start(node, options, ["resumable", str(STEPS), str(STEP_S)])
    job.await_stepping(2)
    job.await_steps(40)
    before = account_of(job, None)
    os.kill(job.ranks()[1].pid, signal.SIGKILL)
    job.await_stepping(2, 1)
    job.await_steps(20)
    before = account_of(job, before)
    os.kill(job.sidecar(leader(job)), signal.SIGKILL)
    job.await_steps(20)
    told: dict[str, float] = {}
    job.await_that(lambda: bool(told.update(exported(job)) or told), "a leader tells of it")
    for launcher in job.nodes.values():
        assert launcher.wait() == 0, job.story()
    account = account_of(job, before)
    plan_began_s = float(account.run)
    assert began_s <= account.began_us / MICRO <= plan_began_s < account.at_us / MICRO
    assert account.at_us / MICRO <= time.time()
    assert (account.open, account.pending_us) == (CLOSED, 0)
    assert_that_it_went_where_it_did(account, job)
    assert set(told) == {category.value for category in Category}
    assert all(account.seconds(Category(name)) >= value - 0.01 for name, value in told.items())
    report = reported(job)
    assert report["spent"]["productive"]["seconds"] == account.seconds(Category.PRODUCTIVE)
    assert [one["cause"] for one in report["incidents"]] == ["crash"]


def assert_that_it_went_where_it_did(account: Account, job: Job) -> None:
    assert account.seconds(Category.OTHER) == account.seconds(Category.UNOBSERVED) == 0
    assert account.seconds(Category.PRODUCTIVE) > 0.7 * STEPS * STEP_S, job.story()
    assert account.seconds(Category.RESTART) > 0
    (incident,) = job.incidents()
    cost = account.costs[incident.identifier]
    assert (cost.cause, cost.lost_steps) == ("crash", incident.step_reached - incident.step_resumed)
    down_s = incident.recovered_unix_s - incident.since_unix_s
    assert cost.down_us / MICRO == pytest.approx(down_s, abs=1.0)


def account_of(job: Job, before: Account | None) -> Account:
    """As the store has it; it must not have fallen."""
    account = parse_account(job._section(Section.ACCOUNT))
    assert account is not None, job.story()
    assert account.total_us == account.at_us - account.began_us
    for name, spent in ({} if before is None else before.micros).items():
        assert account.micros[name] >= spent, name
    return account


def leader(job: Job) -> str:
    return job.lease().candidate.partition("/")[0]


def exported(job: Job) -> dict[str, float]:
    """Category -> seconds, as the leading sidecar exports them; nothing while nobody does."""
    place = job.folder / "state" / job.name / leader(job) / "sidecar.json"
    if not place.is_file():
        return {}
    address = json.loads(place.read_text())["metrics_address"]
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
            page: str = answer.read().decode()
    except OSError:
        return {}
    return {category: float(value) for category, value in TIME.findall(page)}


def reported(job: Job) -> dict[str, Any]:
    """What `holdfast report --json` says of the account afterwards."""
    assert job.server is not None
    asked = ["report", job.name, f"--redis={job.server.settings.url}", "--json"]
    told = subprocess.run(
        [sys.executable, "-m", "holdfast_sidecar.cli.main", *asked],
        env=job.environment,
        cwd=job.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    report: dict[str, Any] = json.loads(told.stdout)["account"]
    return report
