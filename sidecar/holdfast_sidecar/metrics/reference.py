"""Writes docs/metrics.md out of the catalogue: `python -m holdfast_sidecar.metrics.reference`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from holdfast.page import Phase
from holdfast_sidecar.components.gpu.metrics import ENERGY, GPUS, NVML
from holdfast_sidecar.components.health_check.component import GATE
from holdfast_sidecar.components.host.metrics import HOST
from holdfast_sidecar.components.network.metrics import FABRIC, NETWORK
from holdfast_sidecar.components.xid.checks import XIDS
from holdfast_sidecar.export import catalogue
from holdfast_sidecar.export.job_metrics import BLAMES
from holdfast_sidecar.export.rank_metrics import GROUPS
from holdfast_sidecar.performance.goodput.metrics import GOODPUT, RELIABILITY
from holdfast_sidecar.performance.stragglers.metrics import EFFICIENCY, MEMORY, SLOWNESS
from holdfast_sidecar.records.findings import Kind
from holdfast_sidecar.records.metric import Entry

SECTIONS: tuple[tuple[str, Sequence[Entry]], ...] = (
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

<!-- Made by `python -m holdfast_sidecar.metrics.reference`; edit the catalogue instead. -->

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


def reference() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *map(_section, SECTIONS), _phases(), _kinds()])


def _section(section: tuple[str, Sequence[Entry]]) -> str:
    title, entries = section
    rows = [_row(entry) for entry in entries]
    head = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    return "\n".join([f"## {title}", "", *head, *rows, ""])


def _row(entry: Entry) -> str:
    labels = ", ".join(f"`{label}`" for label in entry.labels)
    kind = f"{entry.kind}, *leader*" if entry.leader_only else entry.kind
    return f"| `{entry.name}` | {kind} | {labels} | {entry.help} |"


def _phases() -> str:
    names = ", ".join(f"{phase.value} {phase.name.lower()}" for phase in Phase)
    return f"## Phase numbers\n\n`holdfast_rank_phase_id`: {names}.\n"


def _kinds() -> str:
    names = ", ".join(f"`{kind.value}`" for kind in Kind)
    return f"## Kinds of findings\n\n{names}.\n"


def main() -> None:
    """Write the page to the path given, or to docs/metrics.md."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs/metrics.md")
    path.write_text(reference())


if __name__ == "__main__":
    main()
