"""The figures of nodes that are lost, and of those that are not. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bench.benchmark import Sample
from bench.detection.presence_names import (
    FROZEN_SIDECAR,
    HEARTBEATS,
    NODE,
    NODE_LOSS,
    REAL,
    SIDECAR,
    SIMULATED,
)
from bench.detection.spread import percentile
from bench.figures import Figure, at_most, exactly, middle

LOST = {NODE: "node lost", SIDECAR: "sidecar killed", FROZEN_SIDECAR: "sidecar stands still"}
LIMIT_S = 1.5


def node_loss_figures(samples: Sequence[Sample]) -> list[Figure]:
    """From the loss until it is declared, those of the leader's own node among them."""
    found = [s for s in samples if s["row"] == NODE_LOSS and "declared_s" in s]
    figures = []
    for what, name in LOST.items():
        took = [s["declared_s"] for s in found if s["what"] == what]
        p99 = percentile(took, 0.99)
        figures.append(at_most(f"{name}: declared, p99", "s", p99, LIMIT_S, took))
        leaders = [s["declared_s"] for s in found if s["what"] == what and s["led"]]
        figures.append(middle(f"{name}: declared, the leader's", "s", leaders))
    return figures


def heartbeat_figures(samples: Sequence[Sample]) -> list[Figure]:
    """Living nodes or sidecars that were called lost."""
    simulated, real = _of(samples, SIMULATED), _of(samples, REAL)
    lost = [s for sample in simulated for s in (*sample["nodes_s"], *sample["sidecars_s"])]
    return [
        exactly("simulated heartbeats: false alarms", "times", _sum(simulated, "false_alarms"), 0),
        exactly("simulated losses: not declared", "times", _sum(simulated, "not_declared"), 0),
        middle("simulated losses: declared", "s", lost),
        exactly("real sidecars under load: false alarms", "times", _sum(real, "false_alarms"), 0),
        middle("real sidecars: leaders deposed", "times", [s["leaders_deposed"] for s in real]),
    ]


def _of(samples: Sequence[Sample], what: str) -> list[Sample]:
    return [s for s in samples if s["row"] == HEARTBEATS and s.get("what") == what]


def _sum(samples: Sequence[Sample], name: str) -> float | None:
    return sum(s[name] for s in samples) if samples else None
