"""How long the run's first start took: the best guess at a restart while there was none. Pure.

Known to a leader that saw it; a later one assumes.
"""

from __future__ import annotations

from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.records.plan import Plan


class FirstStart:
    """Of the run that this leader sees."""

    def __init__(self) -> None:
        self._saw_none = False
        """No attempt of the run was under way when it was looked at last."""
        self._run: float | None = None
        """When the run began that was looked at."""
        self._saw_it = False
        """Its ranks were seen before any of them stepped, and not all of them stepping since."""
        self._took_s: float | None = None

    def follow(self, cluster: Cluster, plan: Plan | None, now_unix_s: float) -> float | None:
        """From opening the first attempt until every rank made a step, seconds; None: not seen."""
        if plan is None or plan.state != "running" or plan.restarts or not plan.began_unix_s:
            self._saw_none = plan is None
            return None if plan is None else self._took_s
        ranks = cluster.ranks(plan)
        stepping = sum(rank.step > rank.resumed_step for rank in ranks.values())
        if self._run != plan.began_unix_s:
            self._run, self._took_s = plan.began_unix_s, None
            self._saw_it = self._saw_none or not stepping
        if stepping == plan.world_size and self._saw_it:
            took_s = now_unix_s - plan.began_unix_s
            # What took no time was told by a clock that was set meanwhile.
            self._took_s = took_s if took_s > 0 else None
            self._saw_it = False
        self._saw_none = False
        return self._took_s
