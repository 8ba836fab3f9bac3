"""Views of jobs that never were: small, of a usual size, large, and hostile."""

from __future__ import annotations

from dataclasses import replace

from holdfast_sidecar.export.live.view import (
    CheckpointView,
    FindingView,
    GpuView,
    Heat,
    IncidentView,
    LiveView,
    NodeView,
    RankView,
    SlowView,
)

NOW = 1_000_000.0
PER_NODE = 8
COLUMNS = 120
PHASES = ["starting", "restoring", "compiling", "data", "forward", "backward", "communicating"]

HOSTILE = "\x1b[31m[bold]a\r\nb\x00\u202eevil\u0301[/]"
"""Would colour, move, reorder and stack, if it were let."""


def node_of(rank: int) -> str:
    return f"node-{rank // PER_NODE}"


def healthy(ranks: int, has_gpus: bool = False) -> LiveView:
    """Everybody trains, one step a second."""
    return LiveView(
        run="llm",
        now_unix_s=NOW,
        node="node-0",
        is_leader=True,
        leader_node="node-0",
        state="running",
        light="green",
        headline="running, and nothing is wrong",
        attempt=3,
        world_size=ranks,
        step=12_345,
        step_s=1.0,
        tokens_per_s=45_600.0,
        mfu=0.41,
        restarts=2,
        account={"productive": 3000.0, "restart": 120.0, "saving": 60.0, "queued": 0.0},
        lost_s=90.0,
        goodput=0.915,
        ettr=0.94,
        ranks=[_rank(rank, has_gpus) for rank in range(ranks)],
        nodes=_nodes(ranks),
        heat=heat(ranks),
        checkpoint=CheckpointView(durable_step=12_000, durable_unix_s=NOW - 300),
    )


def troubled(ranks: int, has_gpus: bool = False) -> LiveView:
    """Rank 2 is slow, rank 3 is dead and an incident."""
    view = healthy(ranks, has_gpus)
    told = list(view.ranks)
    told[2] = replace(told[2], slowdown=0.31, cause="gpu_clock", own_s=1.21, step_s=1.31)
    told[3] = replace(told[3], alive=False, phase="backward", phase_since_unix_s=NOW - 7)
    rows = dict(view.heat.rows)
    rows[2] = [*[1.0] * 60, *[1.31] * 40, *[2.5] * 20]
    return replace(
        view,
        light="red",
        headline="rank 3 on node-0 died: SIGKILL",
        warnings=["rank 2 on node-0 is 31% slower"],
        ranks=told,
        heat=replace(view.heat, rows=rows),
        incidents=[
            IncidentView(
                identifier="20261123-050000-crash",
                cause="crash",
                node="node-0",
                ranks=[3],
                since_unix_s=NOW - 7,
                detected_unix_s=NOW - 7,
                decided="restart",
                title="rank 3 on node-0 died: SIGKILL",
                story=["+0 ms: rank 3 died", "because SIGKILL", "next: look at dmesg"],
            ),
            IncidentView(
                identifier="20261123-040000-hang",
                cause="hang",
                node="node-0",
                ranks=[1],
                since_unix_s=NOW - 3600,
                detected_unix_s=NOW - 3600,
                recovered_unix_s=NOW - 3560,
                decided="restart",
                is_over=True,
                lost_s=90.0,
                title="rank 1 on node-0 stood still in backward",
            ),
        ],
        findings=[
            FindingView("crash", "node-0", 3, NOW - 7, True, "rank 3 on node-0: SIGKILL"),
            FindingView("straggler", "node-0", 2, NOW - 60, False, "rank 2 on node-0: gpu_clock"),
        ],
        slow=[
            SlowView(
                rank=2,
                node="node-0",
                percent=31.0,
                since_step=12_300,
                cause="gpu_clock",
                why="its GPU runs at a lower clock than the others",
                confidence=0.9,
                advice="look at the power cap (nvidia-smi -q -d POWER)",
                gain=0.18,
            )
        ],
    )


def unheard(ranks: int) -> LiveView:
    """Of two nodes nothing is heard any more: node-1 is lost, of node-2 it is not known."""
    view = healthy(ranks)
    kinds = {"node-1": "lost", "node-2": "silent"}
    told = [
        replace(
            one,
            alive=kinds[one.node] != "lost",
            step_s=None,
            own_s=None,
            wait_s=None,
            silence=kinds[one.node],
            heard_unix_s=NOW - 32,
        )
        if one.node in kinds
        else one
        for one in view.ranks
    ]
    return replace(view, ranks=told)


def redis_away() -> LiveView:
    """As node-0 sees it, which led; of node-1 it heard half a minute ago."""
    view = healthy(16)
    told = [
        replace(one, silence="old", heard_unix_s=NOW - 32) if one.node == "node-1" else one
        for one in view.ranks
    ]
    return replace(view, ranks=told, is_leader=False, store_up=False)


def hostile(ranks: int) -> LiveView:
    """Every text would take the terminal over."""
    view = troubled(ranks)
    return replace(
        view,
        run=HOSTILE,
        node=HOSTILE,
        leader_node=HOSTILE,
        state=HOSTILE,
        headline=HOSTILE,
        warnings=[HOSTILE],
        account={HOSTILE: 5.0},
        ranks=[replace(one, node=HOSTILE, phase=HOSTILE, cause=HOSTILE) for one in view.ranks],
        nodes=[replace(one, node=HOSTILE, state=HOSTILE) for one in view.nodes],
        incidents=[
            replace(one, cause=HOSTILE, node=HOSTILE, decided=HOSTILE, title=HOSTILE)
            for one in view.incidents
        ],
        findings=[replace(one, kind=HOSTILE, words=HOSTILE) for one in view.findings],
        slow=[replace(one, node=HOSTILE, cause=HOSTILE, advice=HOSTILE) for one in view.slow],
        heat=replace(view.heat, phase_names=[HOSTILE]),
    )


def heat(ranks: int, columns: int = COLUMNS) -> Heat:
    """A column a second and a step in each; nobody slower than the others."""
    return Heat(
        columns=[NOW - columns + 1 + number for number in range(columns)],
        steps=[12_345 - columns + 1 + number for number in range(columns)],
        rows={rank: [1.0] * columns for rank in range(ranks)},
        phases={rank: [4] * columns for rank in range(ranks)},
        phase_names=PHASES,
    )


def _rank(rank: int, has_gpus: bool) -> RankView:
    return RankView(
        rank=rank,
        node=node_of(rank),
        step=12_345,
        phase="forward",
        phase_since_unix_s=NOW - 0.25,
        step_s=1.0,
        own_s=0.9,
        wait_s=0.1,
        gpu=GpuView(0.97, 61.0, 1.98e9, 6e10, 8e10, 640.0) if has_gpus else None,
    )


def _nodes(ranks: int) -> list[NodeView]:
    places: dict[str, list[int]] = {}
    for rank in range(ranks):
        places.setdefault(node_of(rank), []).append(rank)
    return [
        NodeView(name, name == "node-0", NOW - 0.2, "member", numbers)
        for name, numbers in places.items()
    ]
