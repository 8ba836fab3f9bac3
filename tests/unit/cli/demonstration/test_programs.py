"""The demonstration runs the examples of this very installation, and no secret is on view."""

from __future__ import annotations

from pathlib import Path

import holdfast_sidecar
from holdfast_sidecar.cli.demonstration import job
from holdfast_sidecar.cli.demonstration.job import Workspace
from holdfast_sidecar.config.paths import asset
from holdfast_sidecar.config.settings import RedisSettings

REDIS = RedisSettings(url="unix:///x/redis.sock", password_file="/x/password")


def test_the_examples_lie_beside_the_packages_that_run() -> None:
    package = Path(holdfast_sidecar.__file__).parent
    in_checkout = package.parents[1] / "examples"
    packed = package.parent / "holdfast_assets" / "examples"
    expected = in_checkout if in_checkout.exists() else packed
    assert asset("examples/chargpt_resumable.py").parent == expected


def test_both_runs_train_the_same_number_of_steps_on_as_many_ranks(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, tmp_path)
    undisturbed = job.undisturbed_run(workspace, 300)
    node = job.node_of_the_job(workspace, REDIS, "demo", "a", 300)
    assert "--steps=300" in undisturbed
    assert "--steps=300" in node
    assert "--nproc-per-node=4" in undisturbed
    assert {"--nnodes=2", "--spares=1", "--nproc-per-node=2"} <= set(node)


def test_a_password_is_given_by_its_file(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("open sesame")
    redis = RedisSettings(url="unix:///x/redis.sock", password_file=str(tmp_path / "password"))
    assert not any("sesame" in word for word in job.ask_for_checkpoint(redis, "demo"))
