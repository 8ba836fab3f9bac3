"""Writes what docs tell of the code's own tables: `python -m scripts.reference`.

docs/metrics.md whole; of docs/gpus.md and docs/xids.md the tables. Tests hold the pages to them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.contract.page import Phase
from holdfast_sidecar.components.gpu.metrics import ENERGY, GPUS, NVML
from holdfast_sidecar.components.gpu.nvml import device
from holdfast_sidecar.components.gpu.nvml.gpm import METRICS
from holdfast_sidecar.components.gpu.nvml.signals import EACH_TIME, ONCE, ROWS, name
from holdfast_sidecar.components.gpu.readings import Signal
from holdfast_sidecar.components.health_check.component import GATE
from holdfast_sidecar.components.host.metrics import HOST
from holdfast_sidecar.components.network.metrics import FABRIC, NETWORK
from holdfast_sidecar.components.xid import catalog
from holdfast_sidecar.components.xid.checks import XIDS
from holdfast_sidecar.export import catalogue
from holdfast_sidecar.export.metrics import BLAMES, GROUPS
from holdfast_sidecar.performance.metrics import EFFICIENCY, GOODPUT, MEMORY, RELIABILITY, SLOWNESS
from holdfast_sidecar.records.findings import Kind
from holdfast_sidecar.records.metric import MetricSpec

SECTIONS: tuple[tuple[str, Sequence[MetricSpec]], ...] = (
    ("The whole job", catalogue.JOB_WIDE),
    ("Where the time goes", GOODPUT),
    ("Failures and restarts", RELIABILITY),
    ("Who is slow", SLOWNESS),
    ("How well the job does", EFFICIENCY),
    ("Blames", BLAMES),
    ("Checkpoints", catalogue.CHECKPOINTS),
    ("Copies on other nodes", catalogue.PEER_COPIES),
    ("Snapshots", catalogue.SNAPSHOTS),
    ("Ranks", catalogue.RANKS),
    ("Memory of the ranks' devices", MEMORY),
    ("Process groups of the ranks", GROUPS),
    ("Findings", catalogue.FINDINGS),
    ("Coordination", catalogue.COORDINATION),
    ("Health gate", GATE),
    ("Host", HOST),
    ("Network", NETWORK),
    ("Fabric", FABRIC),
    ("GPUs", GPUS),
    ("How NVIDIA's driver answers", NVML),
    ("Energy", ENERGY),
    ("Faults that the GPU driver tells of", XIDS),
    ("The sidecar itself", catalogue.SIDECAR),
)

INTRODUCTION = """\
# Metrics

<!-- Made by `python -m scripts.reference`; edit the catalogue instead. -->

Every sidecar serves `/metrics` on `sidecar.listen` (default: loopback, any free port, which
`holdfast status` and `sidecar.json` tell); [prometheus.md](prometheus.md) says how Prometheus finds
them all. `run` is the name of the job.

- What is not known is absent, never 0. Counters start at 0 as soon as there is something to count.
- Times are Unix timestamps, so an alert computes ages itself: `time() - …_timestamp_seconds`.
- Metrics marked *leader* are about the whole job and told by the leading sidecar alone, with the
  labels `instance=""` and, unless they are about a node, `node=""`: scraped with
  `honor_labels: true` they are the same series whoever leads.
- Counters of the job go on from leader to leader, counters of ranks begin again with every attempt.
"""


def metrics() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *map(_section, SECTIONS), _phases(), _kinds()])


def _section(section: tuple[str, Sequence[MetricSpec]]) -> str:
    title, entries = section
    rows = [_metric_row(entry) for entry in entries]
    head = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    return "\n".join([f"## {title}", "", *head, *rows, ""])


def _metric_row(entry: MetricSpec) -> str:
    labels = ", ".join(f"`{label}`" for label in entry.labels)
    kind = f"{entry.kind}, *leader*" if entry.leader_only else entry.kind
    return f"| `{entry.name}` | {kind} | {labels} | {entry.help} |"


def _phases() -> str:
    names = ", ".join(f"{phase.value} {phase.name.lower()}" for phase in Phase)
    return f"## Phase numbers\n\n`holdfast_rank_phase_id`: {names}.\n"


def _kinds() -> str:
    names = ", ".join(f"`{kind.value}`" for kind in Kind)
    return f"## Kinds of findings\n\n{names}.\n"


def signals() -> str:
    """Every signal, from where, and how often it is asked."""
    told = {row.signal: (" else ".join(map(name, row.ways)), _often(row.every_s)) for row in ROWS}
    told.update({one: (f"GPM metric {number}", "each time") for one, number in METRICS.items()})
    told[Signal.PROCESSES] = (device.FUNCTIONS[0], _often(device.EVERY_S))
    lines = [f"| `{one.value}` | {told[one][0]} | {told[one][1]} |" for one in Signal]
    return "\n".join(["| signal | from | asked |", "|---|---|---|", *lines])


def _often(every_s: float) -> str:
    if every_s == EACH_TIME:
        return "each time"
    return "once" if every_s == ONCE else f"every {every_s:g} s"


BEGIN = "<!-- Made by `python -m scripts.reference`: -->"
END = "<!-- until here. -->"


def xids() -> str:
    """XIDs, SXids and recovery actions."""
    return "\n".join([*_xids(), "", *_actions(), "", *_sxids()])


def with_xids(page: str) -> str:
    """The page with its tables made anew. Raises ValueError where it has no place for them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks the lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{xids()}\n\n{END}{after}"


def _xids() -> Iterator[str]:
    yield "| XID | name | what happened | remedy | besides | 0 lowers it from | note |"
    yield "|---|---|---|---|---|---|---|"
    for entry in catalog.XIDS.values():
        yield _xid_row(entry)


def _xid_row(entry: catalog.XidEntry) -> str:
    besides = ", ".join(follow.value for follow in entry.follow_ups)
    linked = f"R{entry.linked_since}" if entry.linked_since else ""
    note = entry.note
    if entry.on_repeat is not None:
        again = f"again within 24 h: {entry.on_repeat.value}"
        note = f"{note}; {again}" if note else again
    cells = (
        *(str(entry.number), f"`{entry.mnemonic}`", entry.meaning, entry.remedy.value),
        *(besides, linked, note),
    )
    return f"| {' | '.join(cells)} |"


def _actions() -> Iterator[str]:
    yield "| field 230 | the driver asks for | remedy | ends running work |"
    yield "|---|---|---|---|"
    for value, action in catalog.ACTIONS.items():
        urgent = "yes" if action.ends_work else "no"
        yield f"| {value} | {action.name} | {action.remedy.value} | {urgent} |"


def _sxids() -> Iterator[str]:
    yield "| SXid | what happened |"
    yield "|---|---|"
    for number, meaning in sorted(catalog.FATAL_SXIDS.items()):
        yield f"| {number} | {meaning} |"


def with_signals(page: str) -> str:
    """docs/gpus.md with its table made anew."""
    return re.sub(r"\| signal \| from \| asked \|\n(\|.*\n)+", lambda _: f"{signals()}\n", page)


def main() -> None:
    """Write them all; run in the repository."""
    Path("docs/metrics.md").write_text(metrics())
    gpus, xid_page = Path("docs/gpus.md"), Path("docs/xids.md")
    gpus.write_text(with_signals(gpus.read_text()))
    xid_page.write_text(with_xids(xid_page.read_text()))


if __name__ == "__main__":
    main()
