"""Of recovery: training that had to be done again, by cause and by machine."""

from __future__ import annotations

from builders.grid import Placed
from builders.lights import bars
from builders.lines import Style, lines
from builders.names import NODE, RUN, Json
from builders.panel import Hint, Scale, Words
from builders.query import now, over_time
from builders.selecting import gained, of_run
from builders.tables import Column, table


def panels() -> list[Placed]:
    """By cause, by machine, over time, and with names."""
    return [
        Placed(_by_cause(), 8, 8),
        Placed(_by_node(), 8, 8),
        Placed(_over_time(), 8, 8),
        Placed(_by_name(), 24, 8),
    ]


def _by_cause() -> Json:
    words = Hint(
        "Trained again, by cause",
        "GPU hours of training in the time shown that had to be done again.",
        "`node_lost` costs more than `crash`: copies on other nodes (`snapshot.peer`) save that.",
        RUN,
    )
    lost = gained("holdfast_job_lost_work_gpu_seconds_total", "by (cause)")
    scale = Scale("suffix: GPU h", least=0, decimals=2)
    return bars(words, scale, [now(f"sort_desc({lost} / 3600)", "{{cause}}")])


def _by_node() -> Json:
    words = Hint(
        "Trained again, by machine",
        "The same for the ten machines that were blamed for most. No data: none was blamed.",
        "One machine on top: `holdfast node drain NODE`, and have it tested.",
        NODE,
        ("node",),
    )
    lost = gained("holdfast_job_lost_work_gpu_seconds_total", "by (node)", 'node!=""')
    scale = Scale("suffix: GPU h", least=0, decimals=2)
    return bars(words, scale, [now(f"topk(10, {lost} / 3600)", "{{node}}")])


def _over_time() -> Json:
    words = Hint(
        "Trained again, over time",
        "Seconds of training that had to be done again, a second, by cause.",
        "The higher a bar, the longer no snapshot or checkpoint was there.",
        RUN,
    )
    metric = of_run("holdfast_job_lost_work_seconds_total")
    lost = f"sum by (cause) (rate({metric}[$__rate_interval]))"
    style = Style("normal", bars=True)
    return lines(words, Scale("short", least=0), [over_time(lost, "{{cause}}")], style)


def _by_name() -> Json:
    words = Words(
        "By run, cause and machine",
        "Whom the lost work of the time shown is to be charged to.",
        "`holdfast incidents --job RUN` lists the failures behind a row.",
        NODE,
        ("run",),
    )
    labels = ("run", "cause", "node")
    seconds = gained("holdfast_job_lost_work_seconds_total", "by (run, cause, node)")
    gpu = gained("holdfast_job_lost_work_gpu_seconds_total", "by (run, cause, node)")
    columns = [
        Column("Of the job", f"{seconds} > 0", Scale("dtdurations", decimals=0)),
        Column("GPU hours", f"{gpu} / 3600 > 0", Scale("none", decimals=2)),
    ]
    return table(words, labels, columns, "GPU hours")
