"""Rules inside objects of Kubernetes, as Prometheus itself would read them. Pure.

As text, for the reasons that rule_files.py has; blank lines stand for all that is left out, so that
promtool's line numbers are those of the file.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

KIND = re.compile(r"kind:\s*[\"']?PrometheusRule[\"']?\s*(#.*)?")
SPEC = re.compile(r"spec:\s*(#.*)?")

SOMEWHERE = re.compile(r"""^[^#]*["']?kind["']?:\s*["']?PrometheusRule\b""", re.MULTILINE)
GROUPS = re.compile(r"""^[^#]*\bgroups["']?:""", re.MULTILINE)
PLAIN_GROUPS = re.compile(r"^groups:", re.MULTILINE)

UNREAD = (
    "holds objects of Kubernetes in a form that isn't read here (a List, or one line for all): "
    "write each as a document of its own, with `spec:` on a line of its own"
)


def is_of_kubernetes(text: str) -> bool:
    """Whether there is a PrometheusRule in it."""
    return any(KIND.fullmatch(line) for line in text.splitlines())


def is_unread(text: str) -> bool:
    """Whether there are rules in objects that `rules_within` does not find."""
    if SOMEWHERE.search(text) is None or GROUPS.search(text) is None or PLAIN_GROUPS.search(text):
        return False
    return not any(GROUPS.search(part) for part in rules_within(text))


def rules_within(text: str) -> list[str]:
    """What stands in the `spec` of each PrometheusRule, as a rule file of its own."""
    found: list[list[str]] = []
    is_rule = is_inside = False
    for number, line in enumerate(text.splitlines()):
        if re.match(r"\S", line) and not line.startswith("#"):
            is_inside = is_rule and SPEC.fullmatch(line) is not None
            is_rule = KIND.fullmatch(line) is not None or (is_rule and not line.startswith("---"))
            if is_inside:
                found.append([""] * (number + 1))
        elif is_inside:
            found[-1].append("" if line.startswith("#") else line)
    return [_dedented(lines) for lines in found]


def _dedented(lines: Sequence[str]) -> str:
    return textwrap.dedent("\n".join(lines)) + "\n"
