"""Stories of several XIDs each, judged by the engine; what is right was written by hand."""

from __future__ import annotations

from tests.unit.components.xid.telling import run_all

from bench.benchmark import Sample


def measure() -> list[Sample]:
    """All of them."""
    right, total, wrong = run_all()
    return [{"stories": total, "right": right, "wrong": wrong}]
