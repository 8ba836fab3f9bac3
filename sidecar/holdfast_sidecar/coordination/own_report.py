"""This sidecar's report as it goes to the store, and as it is met again in what is read.

Beats come oftener than ticks of the loop: many bring nothing new but their number. And what comes
back of its own need not be parsed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.reports import NodeReport


@dataclass
class OwnReport:
    """The newest, with its text."""

    report: NodeReport | None = None
    text: str = ""
    _said: dict[str, Any] = field(default_factory=dict)
    """All but the beat."""
    _spelt: str = ""

    def spell(self, report: NodeReport) -> str:
        """The report as JSON, which `decode` reads like any other."""
        said = dict(vars(report))
        beat, incarnation = said.pop("beat"), said.pop("incarnation")
        if said != self._said or not self._spelt:
            self._said, self._spelt = said, encode(said)
        who = f'"beat":{beat},"incarnation":{encode(incarnation)}'
        self.report, self.text = report, f"{{{who},{self._spelt[1:]}"
        return self.text

    def recognise(self, text: str) -> NodeReport | None:
        """The report, if this is its text; None: it is somebody else's, or an earlier one."""
        return self.report if self.text == text else None
