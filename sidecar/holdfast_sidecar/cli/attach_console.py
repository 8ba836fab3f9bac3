"""What `holdfast attach` prints while it watches, and when it has seen enough."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from holdfast_sidecar.incidents.explain import sum_up, tell, whom
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.findings import Finding
from holdfast_sidecar.records.formatting import span
from holdfast_sidecar.records.plan import Incident
from holdfast_sidecar.store.protocol import Section, View

HINT_S = 60.0
"""Ranks claim their pages while torch is imported: a minute from a slow disk at worst."""


@dataclass
class Console:
    """Prints what changed. `say` gets one line at a time."""

    say: Callable[[str], object]
    hint: str
    """Said once when no rank has come for a while."""
    began_s: float
    _ranks: dict[int, int] = field(default_factory=dict)
    """rank -> pid of those that live."""
    _found: set[object] = field(default_factory=set)
    _told: dict[str, str] = field(default_factory=dict)
    """Incident -> its newest verdict."""
    _open: dict[str, bool] = field(default_factory=dict)
    """Incident -> whether it is not over."""
    _alone_since_s: float | None = None
    _seen: bool = False

    def look(
        self,
        alive: Mapping[int, int],
        findings: Iterable[Finding],
        view: View | None,
        now_s: float,
    ) -> None:
        """Print what is new. `alive`: rank -> pid; `now_s` is CLOCK_MONOTONIC."""
        for rank in sorted(alive.items() - self._ranks.items()):
            self.say(f"watching rank {rank[0]} (process {rank[1]})")
        for rank in sorted(self._ranks.items() - alive.items()):
            self.say(f"rank {rank[0]} (process {rank[1]}) has ended")
        self._ranks = dict(alive)
        self._seen = self._seen or bool(alive)
        self._alone_since_s = None if alive else (self._alone_since_s or now_s)
        if not self._seen and self.hint and now_s - self.began_s > HINT_S:
            self.say(self.hint)
            self.hint = ""
        self._tell_findings(list(findings))
        self._tell_incidents(view)

    def alone_for_s(self, now_s: float) -> float:
        """For how long every rank that was seen has been gone; 0 before the first one came."""
        if not self._seen or self._alone_since_s is None:
            return 0.0
        return now_s - self._alone_since_s

    @property
    def is_in_trouble(self) -> bool:
        """Whether an incident was told that is not over."""
        return any(self._open.values())

    def _tell_findings(self, findings: list[Finding]) -> None:
        for finding in findings:
            if finding.key not in self._found:
                reasons = "; ".join(finding.evidence)
                who = whom(finding.node, finding.ranks)
                sure = f"{finding.confidence:.0%} sure"
                self.say(f"found {finding.kind.value}: {who} ({sure}): {reasons}")
        self._found = {finding.key for finding in findings}

    def _tell_incidents(self, view: View | None) -> None:
        texts = {} if view is None else view.section(Section.INCIDENTS)
        for identifier, text in texts.items():
            incident = decode(Incident, text)
            if incident is None:
                continue
            story = tell(incident)
            verdict = sum_up(story)
            self._open[identifier] = story.lost_s is None
            if self._told.get(identifier) == verdict:
                continue
            self._told[identifier] = verdict
            over = "" if story.lost_s is None else f" (over after {span(story.lost_s)})"
            self.say(f"incident {identifier}{over}: {verdict}")
