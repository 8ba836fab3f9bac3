"""Writes the table of all alerts into docs/alerts.md, from the rules."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "alerts.md"
BEGIN = "<!-- Made by `python scripts/alert_table.py`; edit the rules instead: -->\n"
END = "<!-- until here. -->\n"
TOLD = {"critical": "page", "warning": "ticket", "info": "not sent", "none": "always"}


def table(rules: Path = ROOT / "alerts" / "rules") -> str:
    """One table for each rule file that alerts."""
    parts = []
    for path in sorted(rules.glob("*.yaml")):
        if rows := list(_rows(path)):
            head = "| alert | told as | after | it means |\n|---|---|---|---|\n"
            parts.append(f"### {path.stem}\n\n{head}{''.join(rows)}")
    return "\n".join(parts)


def _rows(path: Path) -> Iterator[str]:
    for group in yaml.safe_load(path.read_text())["groups"]:
        for rule in group["rules"]:
            if name := rule.get("alert"):
                link = f"[{name}](../alerts/runbooks/{name}.md)"
                told, summary = TOLD[rule["labels"]["severity"]], rule["annotations"]["summary"]
                after = "at once" if rule["for"] == "0s" else rule["for"]
                yield f"| {link} | {told} | {after} | {summary} |\n"


def with_table(page: str) -> str:
    """The page with the table as the rules have it now."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
    sys.stdout.write(f"wrote {PAGE.relative_to(ROOT)}\n")
