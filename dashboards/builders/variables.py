"""What is chosen at the top of a dashboard."""

from __future__ import annotations

from collections.abc import Sequence

from builders.names import DATA_SOURCE, Json

ON_TIME_CHANGE = 2
NATURALLY = 7

DATA_SOURCE_VARIABLE: Json = {
    "hide": 0,
    "includeAll": False,
    "label": "Data Source",
    "multi": False,
    "name": "datasource",
    "options": [],
    "query": "prometheus",
    "refresh": 1,
    "regex": "",
    "skipUrlSync": False,
    "type": "datasource",
}


def _asked(name: str, label: str, query: str) -> Json:
    return {
        "datasource": DATA_SOURCE,
        "hide": 0,
        "label": label,
        "name": name,
        "options": [],
        "query": {"query": query, "refId": f"variable-{name}"},
        "refresh": ON_TIME_CHANGE,
        "regex": "",
        "skipUrlSync": False,
        "sort": NATURALLY,
        "type": "query",
    }


def several(name: str, label: str, query: str, all_of_them: str = ".+") -> Json:
    """A variable of which several values, or all, can be chosen."""
    chosen = _asked(name, label, query)
    return chosen | {"allValue": all_of_them, "includeAll": True, "multi": True}


def one(name: str, label: str, query: str) -> Json:
    """A variable of which one value is chosen."""
    return _asked(name, label, query) | {"includeAll": False, "multi": False}


def choice(name: str, label: str, values: Sequence[str], first: str) -> Json:
    """One of a few fixed values."""
    return {
        "current": {"selected": True, "text": first, "value": first},
        "hide": 0,
        "includeAll": False,
        "label": label,
        "multi": False,
        "name": name,
        "options": [
            {"selected": value == first, "text": value, "value": value} for value in values
        ],
        "query": ",".join(values),
        "skipUrlSync": False,
        "type": "custom",
    }


JOB = several("job", "Scrape job", "label_values(holdfast_sidecar_info, job)")
CLUSTER = several(
    "cluster", "Cluster", 'label_values(holdfast_sidecar_info{job=~"$job"}, cluster)', ".*"
)
"""Where Prometheus adds no such label there is nothing to choose: `.*` is what an absent one
matches too."""
OF_CLUSTER = 'job=~"$job", cluster=~"$cluster"'
RUNS = several("run", "Run", f"label_values(holdfast_sidecar_info{{{OF_CLUSTER}}}, run)")
ONE_RUN = one("run", "Run", f"label_values(holdfast_sidecar_info{{{OF_CLUSTER}}}, run)")
"""Rank 3 of two runs would be one row."""
NODES = several(
    "node", "Node", f'label_values(holdfast_sidecar_info{{{OF_CLUSTER}, run=~"$run"}}, node)'
)
