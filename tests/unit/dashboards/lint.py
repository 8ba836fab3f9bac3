"""What every dashboard keeps to, restated from the dashboard-linter's rules, and some of our own.

Each rule answers complaints; a test breaks each and sees it complain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.unit.dashboards.boards import UIDS, Json, expressions, panels, variables

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
OF_PROMETHEUS = ("ALERTS",)
"""Made by Prometheus from rules: no scrape job made them."""
ADVICE = r"\*\*(?:When it is red|What to look for):\*\* \S"
NOW = ("stat", "bargauge", "piechart", "table")


def importable(board: Json) -> Iterator[str]:
    """Grafana 10 to 13 take it as a file, by the API and by provisioning."""
    if board["id"] is not None or board["editable"] or board["uid"] not in UIDS:
        yield "id, uid or editable"
    if not 39 <= board["schemaVersion"] <= 41:
        yield "schemaVersion"
    if {"__inputs", "__requires", "folderUid", "apiVersion", "spec"} & set(board):
        yield "keys of an export for sharing"


def one_data_source(board: Json) -> Iterator[str]:
    """Chosen at the top, and nowhere else."""
    found = [one for one in variables(board).values() if one["type"] == "datasource"]
    if [(one["name"], one["label"], one["query"]) for one in found] != [
        ("datasource", "Data Source", "prometheus")
    ]:
        yield "data source variable"
    for panel in panels(board):
        if panel["datasource"] != SOURCE:
            yield f"{panel['title']}: data source"
        if any(target["datasource"] != SOURCE for target in panel["targets"]):
            yield f"{panel['title']}: a query's data source"


def variables_choose_all(board: Json) -> Iterator[str]:
    """Several or all can be chosen, and they follow the time; a cluster may be without a name."""
    for name, variable in variables(board).items():
        if variable["type"] != "query":
            continue
        if variable["refresh"] != 2:
            yield f"{name}: not asked again when the time changes"
        if name == "run" and board["uid"] == "holdfast-ranks":
            continue  # rank 3 of two runs would be one row
        wanted = ".*" if name == "cluster" else ".+"
        if not (variable["multi"] and variable["includeAll"]) or variable["allValue"] != wanted:
            yield f"{name}: not several, or all is not {wanted}"


def panels_speak(board: Json) -> Iterator[str]:
    """Title, what it shows, what to do, unit, and no data that is told from 0."""
    for panel in panels(board):
        title, defaults = panel["title"], panel["fieldConfig"]["defaults"]
        if not title:
            yield f"panel {panel['id']}: title"
        if not re.search(ADVICE, panel["description"]):
            yield f"{title}: what to do"
        if len(re.split(ADVICE, panel["description"])[0]) < 20:
            yield f"{title}: what it shows"
        if not defaults.get("unit"):
            yield f"{title}: unit"
        if defaults.get("noValue") != "no data":
            yield f"{title}: no data"
        if not any(one["type"] == "special" for one in defaults["mappings"]):
            yield f"{title}: null"


def titles_are_names(board: Json) -> Iterator[str]:
    """One title, one panel: people and differences name panels by it."""
    titles = [panel["title"] for panel in panels(board)]
    yield from sorted({title for title in titles if titles.count(title) > 1})


def panels_lead_on(board: Json) -> Iterator[str]:
    """From the panel and from its values, to dashboards that are there, with the time."""
    for panel in panels(board):
        links = [*panel["links"], *panel["fieldConfig"]["defaults"]["links"]]
        if len(links) < 2:
            yield f"{panel['title']}: links"
        for link in links:
            place = re.match(r"/d/([\w-]+)\?\$\{__url_time_range\}&\$\{datasource", link["url"])
            if place is None or place[1] not in UIDS:
                yield f"{panel['title']}: leads to {link['url']}"


def panels_lie_apart(board: Json) -> Iterator[str]:
    """Numbered once, inside the 24 columns, none on another; folded ones lie in their row."""
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        across = range(place["x"], place["x"] + place["w"])
        cells = {(x, y) for x in across for y in range(place["y"], place["y"] + place["h"])}
        if across.stop > 24 or cells & taken:
            yield f"{panel['title']}: place"
        taken |= cells
    rows = [panel["id"] for panel in board["panels"] if panel["type"] == "row"]
    numbers = [*rows, *(panel["id"] for panel in panels(board))]
    if len(set(numbers)) != len(numbers):
        yield "numbers"


def queries_choose(board: Json) -> Iterator[str]:
    """Every series is of the chosen scrape job, cluster and run; none by `instance`."""
    for where, expression in expressions(board):
        if where.startswith("variable"):
            continue
        for name, matchers in re.findall(r"\b([a-zA-Z_:]\w+)\{([^}]*)\}", expression):
            wanted = {'job=~"$job"', 'cluster=~"$cluster"', 'run=~"$run"'}
            if name in OF_PROMETHEUS:
                wanted = {'cluster=~"$cluster"'}
            if not wanted <= set(re.split(r",\s*", matchers)):
                yield f"{where}: {name}{{{matchers}}}"
        if re.search(r"holdfast_\w+(?![\w{])", expression) or "instance" in expression:
            yield f"{where}: without a choice"


def rates_fit_the_scrape(board: Json) -> Iterator[str]:
    """`$__rate_interval` for what is a line; only what is one number may be over all that is
    shown."""
    for where, expression in expressions(board):
        for function, window in re.findall(r"(\w+)\s*\((?:[^()]*)\[([^\]]+)\]", expression):
            wanted = ["$__rate_interval"]
            if function in ("increase", "quantile_over_time", "last_over_time"):
                wanted.append("$__range")
            if window not in wanted:
                yield f"{where}: {function}[{window}]"


def present_values_are_present(board: Json) -> Iterator[str]:
    """A single value is asked for now: the last one of a range may be hours old."""
    for panel in panels(board):
        if any(target["instant"] != (panel["type"] in NOW) for target in panel["targets"]):
            yield f"{panel['title']}: instant"


def happenings_are_marked(board: Json) -> Iterator[str]:
    """Incidents, restarts, checkpoints by query, and stories that were pushed."""
    names = {mark["name"] for mark in board["annotations"]["list"]}
    yield from sorted({"Incidents", "Restarts", "Checkpoints", "Incidents' stories"} - names)


RULES = (
    importable,
    one_data_source,
    variables_choose_all,
    panels_speak,
    titles_are_names,
    panels_lead_on,
    panels_lie_apart,
    queries_choose,
    rates_fit_the_scrape,
    present_values_are_present,
    happenings_are_marked,
)
