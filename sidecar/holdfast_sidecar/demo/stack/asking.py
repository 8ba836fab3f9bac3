"""What Prometheus knows of the job by now."""

from __future__ import annotations

import json
from http.client import HTTPException
from urllib.parse import urlencode

from holdfast_sidecar.demo.stack.daemons import fetch


def knows_the_job(run: str, nodes: int) -> str:
    """An expression that gives something once every node is scraped, the leader told of all of
    them, and the rules have seen the run train."""
    beats = f'holdfast_node_last_heartbeat_timestamp_seconds{{run="{run}"}}'
    parts = (
        f'(count(up{{job="holdfast-sidecar",run="{run}"}} == 1) == {nodes})',
        f"(count({beats}) == {nodes})",
        f'(run:holdfast_job_short:bool{{run="{run}"}} == 0)',
    )
    return " and on () ".join(parts)


def holds(prometheus: str, expression: str) -> bool:
    """Whether the expression gives anything now; False also while there is no answer."""
    try:
        answer = fetch(f"{prometheus}/api/v1/query?{urlencode({'query': expression})}")
        return bool(json.loads(answer)["data"]["result"])
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return False
