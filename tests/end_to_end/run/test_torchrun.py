"""The real torchrun with our rendezvous, and sidecars run beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.end_to_end.run.test_faults import WORK, await_ranks, finish, sidecar_of, tell

if TYPE_CHECKING:
    from tests.end_to_end.run.conftest import Ground
    from tests.servers import Server

pytestmark = pytest.mark.torch

NODES = ("a", "b")


def test_plain_torchrun_meets_and_restarts_through_our_rendezvous(
    ground: Ground, server: Server
) -> None:
    script = ground.script("work.py", WORK)
    url = server.settings.url
    for node in NODES:
        ground.start_python(
            *("holdfast_sidecar.cli.main", "sidecar", "--job=j", f"--node={node}"),
            f"--redis={url}",
        )
        sidecar_of(ground, node)
    agents = [
        ground.start_python(
            *("torch.distributed.run", "--nnodes=2", "--nproc-per-node=2", "--max-restarts=3"),
            *("--rdzv-backend=holdfast", f"--rdzv-endpoint={url}", "--rdzv-id=j"),
            *(f"--rdzv-conf=node={node}", script),
            HOLDFAST_REDIS=url,
        )
        for node in NODES
    ]
    first = await_ranks(ground, 0, 4)
    nodes = [first[rank]["HOLDFAST_NODE"] for rank in range(4)]
    assert sorted(nodes) == ["a", "a", "b", "b"]
    tell(ground, "fail-0-2")
    second = await_ranks(ground, 1, 4)
    assert [second[rank]["HOLDFAST_NODE"] for rank in range(4)] == nodes
    assert first[0]["MASTER_PORT"] != second[0]["MASTER_PORT"]
    assert "HOLDFAST_REDIS" not in second[0]
    finish(ground, *agents)


@pytest.mark.parametrize("launcher", ["torchrun", "holdfast run"])
def test_without_a_rank_and_without_a_server_for_good_a_node_leaves_with_75(
    launcher: str, ground: Ground, server: Server
) -> None:
    script = ground.script("work.py", WORK)
    url = server.settings.url
    if launcher == "torchrun":
        ground.start_python(
            "holdfast_sidecar.cli.main", "sidecar", "--job=j", "--node=a", f"--redis={url}"
        )
        sidecar_of(ground, "a")
        node = ground.start_python(
            *("torch.distributed.run", "--nnodes=1", "--nproc-per-node=1", "--max-restarts=3"),
            *("--rdzv-backend=holdfast", f"--rdzv-endpoint={url}", "--rdzv-id=j"),
            *("--rdzv-conf=node=a,join_timeout=3", script),
            HOLDFAST_REDIS=url,
        )
    else:
        conf = ("--job=j", "--node=a", "--rdzv-conf=join_timeout=3")
        node = ground.start(f"--redis={url}", *conf, script)
    await_ranks(ground, 0, 1)
    server.kill()
    tell(ground, "fail-0-0")
    assert node.wait() == 75, node.output
    told = [line for line in node.output.splitlines() if "no rank lives here" in line]
    assert len(told) == 1, node.output
    assert "the coordination server is away: leaving with 75" in told[0]
    assert "Traceback" not in node.output
