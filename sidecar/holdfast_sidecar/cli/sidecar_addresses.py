"""Where a job's sidecars serve their pages: those of this machine, whatever Redis says, else those
that Redis knows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from holdfast_sidecar.cli.finding_the_job import FoundJob
from holdfast_sidecar.cli.store_away import living_sidecars, read_view
from holdfast_sidecar.config.paths import find
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.policy.cluster import parse_cluster
from holdfast_sidecar.store.protocol import View


def jobs_here(root: Path) -> Mapping[str, Sequence[str]]:
    """Job -> addresses, of every job with a living sidecar on this machine."""
    found: dict[str, Sequence[str]] = {}
    for directory in find(root, "*/"):
        addresses = list(addresses_here(directory))
        if addresses:
            found[directory.name] = addresses
    return found


def addresses_here(state: Path) -> Iterator[str]:
    """Of one job's living sidecars on this machine."""
    for node in living_sidecars(state):
        try:
            record = json.loads((state / node / "sidecar.json").read_text())
        except (OSError, ValueError):
            continue
        address = record.get("metrics_address") if isinstance(record, dict) else None
        if isinstance(address, str) and address:
            yield address


def only_one(here: Mapping[str, Sequence[str]]) -> str | None:
    """The job of this machine; None where there is none. BadInput where there are several."""
    if len(here) > 1:
        raise BadInput(f"several jobs are here, name one with --job: {', '.join(sorted(here))}")
    return next(iter(here), None)


def addresses_known(found: FoundJob) -> list[str]:
    """Those that the job's store knows, the leader's first; raises what `read_view` does."""
    return of_view(read_view(found))


def of_view(view: View) -> list[str]:
    """The same of what the store holds."""
    leader = view.lease.candidate.rpartition("/")[0]
    nodes = parse_cluster(view).nodes
    ordered = sorted(nodes, key=lambda node: (node != leader, node))
    return [nodes[node].metrics_address for node in ordered if nodes[node].metrics_address]
