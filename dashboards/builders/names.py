"""The dashboards' uids, which links and bookmarks rest on, and whom they ask for data."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

FLEET = "holdfast-fleet"
RUN = "holdfast-run"
RANKS = "holdfast-ranks"
NODE = "holdfast-node"
RECOVERY = "holdfast-recovery"
SELF = "holdfast-self"

TAG = "holdfast"

DATA_SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
"""A variable, so that the same file serves every Grafana."""

OWN_SOURCE: Json = {"type": "grafana", "uid": "-- Grafana --"}
"""Grafana itself: where pushed annotations are kept."""
