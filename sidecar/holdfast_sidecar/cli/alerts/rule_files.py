"""The rule files as text: where their links lead, all in one, as objects of Kubernetes.

Pure but for reading them.

As text, because comments carry the reason of every threshold, and because a training environment
need not have a YAML library. What this relies on, a test checks: a file is comments, the line
`groups:`, and groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

RUNBOOKS = "https://runbooks.example/holdfast"
"""Where the links to runbooks lead, until somebody says where they are."""

DASHBOARDS = "https://grafana.example"
"""The same for Grafana."""

GROUPS = "groups:\n"


@dataclass(frozen=True)
class RuleFile:
    """One theme."""

    theme: str
    text: str

    def rebased(self, runbook_url: str, dashboard_url: str) -> RuleFile:
        """The same, with links that lead there."""
        text = self.text.replace(f"{RUNBOOKS}/", f"{runbook_url}/")
        return RuleFile(self.theme, text.replace(f"{DASHBOARDS}/", f"{dashboard_url}/"))

    @property
    def comment(self) -> str:
        """What stands before the groups."""
        return self.text.partition(GROUPS)[0].rstrip("\n")

    @property
    def groups(self) -> str:
        """The groups alone."""
        return self.text.partition(GROUPS)[2]


def read_rules(folder: Path) -> list[RuleFile]:
    """All rule files of a folder, by name."""
    return [RuleFile(path.stem, path.read_text()) for path in sorted(folder.glob("*.yaml"))]


def in_one(files: Sequence[RuleFile]) -> str:
    """All of them as one file for Prometheus."""
    parts = [_indented(file.comment) + "\n" + file.groups for file in files]
    return GROUPS + "".join(parts)


def of_kubernetes(
    file: RuleFile, labels: Mapping[str, str], namespace: str = "", name: str = ""
) -> str:
    """A PrometheusRule of the Prometheus operator.

    labels: those that the operator's `ruleSelector` looks for. namespace empty: that of whoever
    applies it.
    """
    lines = [
        *file.comment.splitlines(),
        "apiVersion: monitoring.coreos.com/v1",
        "kind: PrometheusRule",
        "metadata:",
        f"  name: {name or f'holdfast-{file.theme}'}",
    ]
    if namespace:
        lines.append(f"  namespace: {namespace}")
    lines.append("  labels:")
    everyone = {"app.kubernetes.io/part-of": "holdfast", **labels}
    lines += [f'    {label}: "{value}"' for label, value in everyone.items()]
    return "\n".join([*lines, "spec:", f"  {GROUPS}"]) + _indented(file.groups).lstrip("\n")


def _indented(text: str) -> str:
    return "".join(f"  {line}" if line.strip() else line for line in text.splitlines(keepends=True))
