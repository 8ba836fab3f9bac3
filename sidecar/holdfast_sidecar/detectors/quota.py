"""A quota of CPU time that keeps ranks waiting."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.readings.host import HostReading, tally_before
from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.findings import Finding, Kind

SPAN_S = 60.0

THROTTLED_RATIO = 0.25
"""Of the periods (100 ms each) in which anything ran. A burst at the start of a step uses up a
period now and then; a quarter is what kubernetes-mixin calls too much, and every collective waits
for the slowest rank, so that of eight ranks one is held up nearly always."""

LEAST_PERIODS = 100
"""Ten seconds of running: a share of less says nothing."""


def find_throttling(host: HostReading, moment: Moment) -> Iterator[Finding]:
    """Judged over a minute; counts that went backwards are another group's."""
    before, now = tally_before(host, SPAN_S), host.now
    if before is None or now is None or host.group is None:
        return
    periods = _grown(before.periods, now.periods)
    throttled = _grown(before.throttled_periods, now.throttled_periods)
    if periods < LEAST_PERIODS or throttled < THROTTLED_RATIO * periods:
        return
    limit = "" if host.group.cpu_limit is None else f" of {host.group.cpu_limit:.3g} cores"
    yield Finding(
        kind=Kind.CPU_THROTTLED,
        node=moment.node,
        since_unix_s=moment.now_unix_s,
        confidence=0.9,
        evidence=[f"the CPU quota{limit} was used up in {throttled / periods:.0%} of its periods"],
    )


def _grown(before: int | None, now: int | None) -> int:
    return 0 if before is None or now is None else max(0, now - before)
