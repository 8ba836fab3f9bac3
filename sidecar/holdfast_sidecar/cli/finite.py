"""A number on the command line that is one: a range refuses no NaN, which is neither below it nor
above."""

from __future__ import annotations

import math
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """A FloatRange of numbers that can be counted with."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; UsageError where it is none."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is no number to count with.", param, ctx)
        return number
