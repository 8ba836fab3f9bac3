"""Marks over all graphs of a dashboard: restarts, checkpoints, incidents.

Asked of Prometheus, so that they are there without any token; incidents that `holdfast dashboards
annotate` pushed are shown besides, with their stories.
"""

from __future__ import annotations

from builders.colours import BLUE, PURPLE, VERMILION
from builders.names import DATA_SOURCE, OWN_SOURCE, TAG, Json
from builders.selecting import PER_RUN, of_run


def happenings(tag: str = "$run") -> list[Json]:
    """Of the chosen runs. Pushed ones are found by `tag`: each has its run's name as one."""
    incidents = (
        f"sum by (cluster, run, cause) (increase("
        f"{of_run('holdfast_job_incidents_total')}[$__rate_interval])) > 0"
    )
    restarts = (
        f"sum {PER_RUN} (increase({of_run('holdfast_job_restarts_total')}[$__rate_interval])) > 0"
    )
    checkpoints = (
        f"max {PER_RUN} (changes("
        f"{of_run('holdfast_checkpoint_last_durable_step')}[$__rate_interval])) > 0"
    )
    return [
        _of_grafana(),
        _asked("Incidents", incidents, VERMILION, "{{cause}}", "incident of {{run}}"),
        _asked("Restarts", restarts, PURPLE, "restart", "{{run}}"),
        _asked("Checkpoints", checkpoints, BLUE, "checkpoint", "{{run}}", is_on=False),
        _pushed(tag),
    ]


def _asked(name: str, expr: str, colour: str, title: str, text: str, is_on: bool = True) -> Json:
    return {
        "datasource": DATA_SOURCE,
        "enable": is_on,
        "expr": expr,
        "hide": False,
        "iconColor": colour,
        "name": name,
        "step": "15s",
        "tagKeys": "run",
        "textFormat": text,
        "titleFormat": title,
    }


def _of_grafana() -> Json:
    """The one that every dashboard has."""
    return {
        "builtIn": 1,
        "datasource": OWN_SOURCE,
        "enable": True,
        "hide": True,
        "iconColor": "rgba(0, 211, 255, 1)",
        "name": "Annotations & Alerts",
        "type": "dashboard",
    }


def _pushed(tag: str) -> Json:
    return {
        "datasource": OWN_SOURCE,
        "enable": True,
        "hide": False,
        "iconColor": VERMILION,
        "name": "Incidents' stories",
        "target": {"limit": 100, "matchAny": tag != TAG, "tags": [tag], "type": "tags"},
        "type": "tags",
    }
