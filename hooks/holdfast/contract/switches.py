"""HOLDFAST_HOOKS: which hooks a rank gets. `0` none; else names, `-name` to leave one out and
`+name` for one that is left out by default, with commas between."""

from __future__ import annotations

import os

from holdfast.contract import environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

HOOKS = (
    "death-watch",
    "tracing",
    "last-words",
    "termination",
    "optimizer",
    "backward",
    "buffers",
    "gradients",
    "data",
    "workers",
    "communication",
    "collectives",
    "waiting",
    "functional-collectives",
    "reducer",
    "group",
    "layout",
    "compiling",
    "untraced",
    "devices",
    "traces",
    "garbage-collector",
    "saves",
)
"""On by default."""

OPTIONAL = ("transfers",)
"""What it tells is little for its price: some 0.5 us for each of an eager step's thousands of calls
of Tensor.to."""


def is_on(hook: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a rank gets this hook."""
    said = _words(environ)
    if "0" in said or f"-{hook}" in said:
        return False
    return hook in HOOKS or f"+{hook}" in said


def problem(environ: Mapping[str, str] = os.environ) -> str:
    """What is wrong with the variable; empty: nothing."""
    known = {sign + hook for sign in "+-" for hook in (*HOOKS, *OPTIONAL)}
    unknown = [word for word in _words(environ) if word not in known | {"0", "1"}]
    if not unknown:
        return ""
    return (
        f"{environment.HOOKS}={environ[environment.HOOKS]} has {unknown[0]!r}: it is 0, or -NAME "
        f"and +NAME with commas between, of {', '.join((*HOOKS, *OPTIONAL))}"
    )


def _words(environ: Mapping[str, str]) -> list[str]:
    said = environ.get(environment.HOOKS, "").split(",")
    return [word for word in map(str.strip, said) if word]
