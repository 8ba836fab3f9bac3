"""When a job took no step though it should have. Pure."""

from __future__ import annotations

from holdfast_sidecar.export.live.view import Heat

STEPS = 3
"""A job that has taken no step for three of its steps stands, as `[stall]` has it."""

COLUMNS = 2
"""And for so many columns: in one that is shorter than a step none need end."""


def standstill(heat: Heat, step_s: float | None) -> frozenset[int]:
    """Columns within a stretch that long, from the first without a step on."""
    patience_s = STEPS * (step_s or 0.0)
    stood: set[int] = set()
    newest: int | None = None
    since = 0
    for number, step in enumerate(heat.steps[: len(heat.columns)]):
        if step is None or newest is None or step > newest or step < newest:
            newest, since = (newest if step is None else step), number
        elif number - since >= COLUMNS and heat.columns[number] - heat.columns[since] > patience_s:
            stood |= set(range(since + 1, number + 1))
    return frozenset(stood)
