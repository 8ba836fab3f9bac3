"""The pair of the demonstration has no spare, is scraped where it was, and shows no secret."""

from __future__ import annotations

from pathlib import Path

from testing.alerting import holds, knows_the_job
from testing.demo_alerting import DOOMED, NODES

from holdfast_sidecar.cli.demonstration import job
from holdfast_sidecar.cli.demonstration.job import Workspace
from holdfast_sidecar.config.settings import RedisSettings

REDIS = RedisSettings(url="unix:///x/redis.sock", password_file="/x/password")


def test_two_nodes_train_and_nobody_waits_to_take_over(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, tmp_path)
    node = job.node_of_the_pair(workspace, REDIS, "demo-stack", "a", "127.0.0.1:9750")
    assert {"--nnodes=2", "--nproc-per-node=1", "--node=a"} <= set(node)
    assert "--set=sidecar.listen=127.0.0.1:9750" in node
    assert not any(word.startswith("--spares") for word in node)
    assert f"--steps={job.ENDLESS}" in node


def test_the_one_that_is_killed_is_one_of_them() -> None:
    assert DOOMED in NODES


def test_a_password_is_given_by_its_file(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("open sesame")
    redis = RedisSettings(url="unix:///x/redis.sock", password_file=str(tmp_path / "password"))
    workspace = Workspace(tmp_path, tmp_path)
    node = job.node_of_the_pair(workspace, redis, "demo-stack", "a", "127.0.0.1:9750")
    assert not any("sesame" in word for word in node)


def test_rules_are_exported_with_links_to_runbooks_that_are_served(tmp_path: Path) -> None:
    command = job.export_alerts(tmp_path, "http://127.0.0.1:1/runbooks")
    assert command[-4:] == [
        "alerts",
        "export",
        f"--out={tmp_path}",
        "--runbook-url=http://127.0.0.1:1/runbooks",
    ]


def test_the_job_is_known_by_all_its_nodes_and_by_the_rules() -> None:
    asked = knows_the_job("demo-stack", 2)
    scraped = 'up{job="holdfast-sidecar",run="demo-stack"}'
    for part in (scraped, "== 2", "run:holdfast_job_short:bool"):
        assert part in asked


def test_a_prometheus_that_does_not_answer_knows_nothing() -> None:
    assert not holds("http://127.0.0.1:1", "vector(1)")
