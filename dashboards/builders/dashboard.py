"""A whole dashboard, in the classic schema that Grafana 10 to 13 import."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from builders.grid import Row, lay
from builders.happenings import happenings
from builders.names import TAG, Json
from builders.variables import DATA_SOURCE_VARIABLE

SCHEMA_VERSION = 39
"""Grafana 10.4's: every later one brings it up to its own on reading, an older one reads it too."""


@dataclass(frozen=True)
class Title:
    """What a dashboard is and which question it answers."""

    uid: str
    title: str
    answers: str


def dashboard(
    title: Title, variables: Sequence[Json], rows: Sequence[Row], tag: str = "$run"
) -> Json:
    """As it is imported: without an id of one Grafana, without inputs, not to be edited there."""
    return {
        "annotations": {"list": happenings(tag)},
        "description": title.answers,
        "editable": False,
        "fiscalYearStartMonth": 0,
        "graphTooltip": 1,
        "id": None,
        "links": [_others()],
        "panels": lay(rows),
        "refresh": "30s",
        "schemaVersion": SCHEMA_VERSION,
        "tags": [TAG],
        "templating": {"list": [DATA_SOURCE_VARIABLE, *variables]},
        "time": {"from": "now-6h", "to": "now"},
        "timepicker": {},
        "timezone": "browser",
        "title": title.title,
        "uid": title.uid,
        "version": 1,
        "weekStart": "",
    }


def _others() -> Json:
    return {
        "asDropdown": True,
        "icon": "external link",
        "includeVars": True,
        "keepTime": True,
        "tags": [TAG],
        "targetBlank": False,
        "title": "Holdfast",
        "tooltip": "The other dashboards, for the same time and run",
        "type": "dashboards",
        "url": "",
    }
