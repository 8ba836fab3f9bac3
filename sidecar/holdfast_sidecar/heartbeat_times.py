"""When each node's heartbeat was last seen to move, as wall clock time for the metrics page.

Liveness is told by survivors: a dead node can't export its own death. What is done about it is
judged elsewhere, on a monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast_sidecar.store.protocol import Section, View

KEPT_S = 3600.0
"""A node whose report left the store, as when Redis came back empty: so long service discovery goes
on listing it, and alerts know it as lost."""


@dataclass
class HeartbeatTimes:
    """Remembers every node's newest heartbeat."""

    _seen: dict[str, tuple[str, float]] = field(default_factory=dict)
    """With the text that came then: each beat is in the text, so that it need not be parsed."""
    _view: View | None = None

    def seen(self, view: View | None, now_unix_s: float) -> dict[str, float]:
        """Node -> when it was last seen to move; a node that left the store is forgotten
        an hour after that."""
        if view is not None and view is not self._view:
            self._view = view
            reports = view.section(Section.NODES)
            self._seen = {
                node: known
                for node, known in self._seen.items()
                if node in reports or now_unix_s - known[1] < KEPT_S
            }
            for node, text in reports.items():
                if node not in self._seen or self._seen[node][0] != text:
                    self._seen[node] = (text, now_unix_s)
        return {node: at for node, (_, at) in self._seen.items()}
