"""Who is blamed for failures, and how often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from holdfast_sidecar.config.settings import PolicySettings
from holdfast_sidecar.policy.budget import OF_A_NODE, find_lemons, taken_back
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.metric import Sample, Told


def draw_blames(
    cluster: Cluster, policy: PolicySettings, now_unix_s: float, told: Told
) -> Iterator[Sample]:
    """A score for every node that there is, and for whoever was blamed and is gone."""
    lemons = find_lemons(cluster.incidents.values(), policy, now_unix_s)
    scores: dict[str, float] = {}
    blamed: dict[str, Counter[str]] = {}
    for lemon in lemons:
        scores[lemon.node] = max(scores.get(lemon.node, 0.0), lemon.score)
        blamed.setdefault(lemon.node, Counter()).update(lemon.blamed)
    for (node, cause), times in taken_back(cluster.incidents.values()).items():
        blamed.setdefault(node, Counter())[cause] += times
    for node in sorted({*cluster.agents, *scores}):
        yield from told("node_lemon_score", scores.get(node, 0.0), node=node)
    for node, causes in sorted(blamed.items()):
        for cause in sorted(OF_A_NODE):
            yield from told("node_blamed_total", causes[cause], node=node, cause=cause)
