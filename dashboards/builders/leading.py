"""Where a click leads: to the next finer dashboard, with the same time and run."""

from __future__ import annotations

from collections.abc import Sequence

from builders.names import FLEET, NODE, RANKS, RECOVERY, RUN, SELF, Json

TITLES = {
    FLEET: "All runs",
    RUN: "The run",
    RANKS: "Its ranks",
    NODE: "The node's health",
    RECOVERY: "Checkpoints and recovery",
    SELF: "Holdfast itself",
}

ALWAYS = ("datasource", "cluster")


def panel_link(uid: str) -> Json:
    """At the panel's title: what is chosen at the top stays chosen."""
    return {
        "asDropdown": False,
        "icon": "",
        "includeVars": False,
        "keepTime": False,
        "tags": [],
        "targetBlank": False,
        "title": TITLES[uid],
        "tooltip": "",
        "type": "link",
        "url": _address(uid, [_chosen(name) for name in (*ALWAYS, "run")]),
    }


def data_link(uid: str, labels: Sequence[str]) -> Json:
    """At a value: those of its labels that the next dashboard can choose by are chosen there."""
    taken = [f"var-{label}=${{__field.labels.{label}}}" for label in labels]
    return _link(uid, labels, taken)


def cell_link(uid: str, labels: Sequence[str]) -> Json:
    """In a table's row, whose labels are its other cells."""
    taken = [f"var-{label}=${{__data.fields.{label}}}" for label in labels]
    return _link(uid, labels, taken)


def _link(uid: str, labels: Sequence[str], taken: list[str]) -> Json:
    kept = [] if "run" in labels else [_chosen("run")]
    url = _address(uid, [*(_chosen(name) for name in ALWAYS), *kept, *taken])
    return {"targetBlank": False, "title": TITLES[uid], "url": url}


def _chosen(name: str) -> str:
    return f"${{{name}:queryparam}}"


def _address(uid: str, parts: Sequence[str]) -> str:
    return f"/d/{uid}?" + "&".join(("${__url_time_range}", *parts))
