"""What a node needs and does not have: its launcher, the store, an answer from its probes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.reports import ProbeHealth

FAILING_FOR_S = 15.0
"""A probe that fails once is a hiccup; one that fails this long blinds us."""

LEFT_TO_DOCTOR = frozenset({"kernel_log"})
"""What many a container may not read, for as long as it runs: `holdfast doctor` and `probe_up` say
so, and no alarm does."""

STORE_SILENT_FOR_S = 3.0
"""A failover behind Sentinel takes about two seconds and is nothing to tell anybody."""


def find_absences(
    failing: Sequence[ProbeHealth],
    launcher_alive: bool,
    store_answered_s: float,
    moment: Moment,
) -> Iterator[Finding]:
    """Launcher lost, store away since `store_answered_s`, probes that keep failing."""
    if not launcher_alive:
        yield _finding(Kind.LAUNCHER_LOST, moment, 1.0, "the launcher's process is gone")
    silent_s = moment.age_s(store_answered_s)
    if silent_s >= STORE_SILENT_FOR_S:
        text = f"the store has not answered for {silent_s:.1f} s"
        yield _finding(Kind.STORE_AWAY, moment, 1.0, text)
    for health in failing:
        if health.name in LEFT_TO_DOCTOR:
            continue
        if moment.age_s(health.failing_since_s) >= FAILING_FOR_S:
            text = f"probe {health.name} failed {health.failures} times, last: {health.error}"
            yield _finding(Kind.PROBE_FAILED, moment, 0.9, text, health.name)


def _finding(kind: Kind, moment: Moment, confidence: float, text: str, what: str = "") -> Finding:
    return Finding(kind, moment.node, moment.now_unix_s, confidence, evidence=[text], what=what)
