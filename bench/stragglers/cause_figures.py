"""What the simulated causes come to: shares of the confusion matrix. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bench.benchmark import Sample
from bench.figures import Figure, at_least, at_most
from bench.stragglers.cause_names import CAUSES_ROW

RIGHT = 0.97
"""Of all cases, "unknown" and "nobody" counted as wrong."""


def cause_figures(samples: Sequence[Sample]) -> list[Figure]:
    """Of all cases together; the matrix itself is in the raw samples."""
    cases = [sample for sample in samples if sample["row"] == CAUSES_ROW]
    if not cases:
        return [at_least("causes named rightly, simulated", "", None, RIGHT)]
    right = [case["told"] == case["cause"] for case in cases]
    shares = sorted(
        sum(c["told"] == name for c in cases if c["cause"] == name) / count
        for name, count in Counter(case["cause"] for case in cases).items()
    )
    links = [case for case in cases if case["cause"] == "link"]
    named = [case for case in links if case["told_node"]]
    wrong_nodes = sum(case["told_node"] != case["node"] for case in named)
    return [
        at_least("causes named rightly, simulated", "", sum(right) / len(right), RIGHT),
        Figure("the worst of the causes", shares[0], "", spread=tuple(shares)),
        at_most(
            "healthy ranks blamed meanwhile", "", sum(len(case["others"]) for case in cases), 0.0
        ),
        at_most("slow links put down to the wrong node", "", wrong_nodes if links else None, 0.0),
        Figure("slow links whose node was named", len(named), f"of {len(links)}"),
    ]


def confusion(samples: Sequence[Sample]) -> dict[str, Counter[str]]:
    """Cause -> what was told of its cases, how often."""
    matrix: dict[str, Counter[str]] = {}
    for sample in samples:
        if sample["row"] == CAUSES_ROW:
            matrix.setdefault(sample["cause"], Counter())[sample["told"]] += 1
    return matrix
