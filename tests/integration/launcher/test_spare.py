"""What a spare expects to start, against what torch really starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch.distributed.elastic.agent.server.api import Worker, WorkerSpec  # noqa: E402
from torch.distributed.elastic.agent.server.local_elastic_agent import (  # noqa: E402
    LocalElasticAgent,
)
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs  # noqa: E402

from holdfast_sidecar.config.paths import Paths  # noqa: E402
from holdfast_sidecar.launcher import handover  # noqa: E402
from holdfast_sidecar.launcher.rank_process import (  # noqa: E402
    Command,
    RankContext,
    RankProcess,
    rank_environment,
    ranks_started_by,
    start_cold,
)
from holdfast_sidecar.launcher.standby import expected_commands  # noqa: E402


def test_an_interpreter_started_ahead_fits_what_torch_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    script = tmp_path / "train.py"
    script.write_text("")
    spec = WorkerSpec(
        role="default",
        local_world_size=1,
        rdzv_handler=SimpleNamespace(get_run_id=lambda: "j", use_agent_store=True),
        entrypoint=sys.executable,
        args=("-u", str(script), "--shard=${local_rank}"),
    )
    context = RankContext("j", "c", 1, 1, Paths(tmp_path / "shm", tmp_path / "state"), "/hooks")
    (expected,) = expected_commands(spec, context, os.environ)
    actual = started_by_torch(spec, context, tmp_path)
    assert tuple(expected.arguments) == tuple(actual.arguments)
    early = handover.early_part(expected.environment)
    given = handover.make_handover(early, actual.environment, str(tmp_path))
    assert given is not None
    assert given.set["RANK"] == "4"


def started_by_torch(spec: WorkerSpec, context: RankContext, folder: Path) -> Command:
    commands: list[Command] = []

    def start(command: Command) -> RankProcess:
        commands.append(command)
        return start_cold(command)

    agent = LocalElasticAgent(spec, logs_specs=DefaultLogsSpecs(log_dir=str(folder / "logs")))
    group = agent._worker_group
    group.workers = [Worker(0, global_rank=4, role_rank=0, world_size=5, role_world_size=5)]
    group.group_rank, group.group_world_size = 1, 2
    group.master_addr, group.master_port = "127.0.0.1", 1
    group.store = object()
    with ranks_started_by(start, lambda env: rank_environment(env, context)):
        agent._start_workers(group)
    agent._pcontext.wait(30)
    agent._pcontext.close()
    (command,) = commands
    return command
