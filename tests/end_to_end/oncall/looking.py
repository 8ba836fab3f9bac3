"""Somebody opens every dashboard: what is asked of Prometheus then, and what stays empty."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml
from tests.prometheus_server import Prometheus
from tests.unit.dashboards.boards import UIDS, Question, load, questions

LIST = Path(__file__).with_name("still_waiting.yaml")

SHOWN_S = 300.0
"""Longer than an evening lasts."""


def unanswered(prometheus: Prometheus) -> set[str]:
    """`uid: where` of every query that finds nothing."""
    return {
        f"{uid}: {one.where}"
        for uid in UIDS
        for one in questions(load(uid))
        if not _finds(prometheus, one)
    }


@dataclass(frozen=True)
class StillWaiting:
    """Queries of which it is known why they find nothing, as `uid: where`, by reason."""

    machine: dict[str, list[str]]
    """They find something where the machine has what they wait for."""
    course: dict[str, list[str]]
    """They find something where the evening takes that turn."""
    run: dict[str, list[str]]

    @property
    def may(self) -> set[str]:
        """What may find nothing."""
        return {*_all(self.machine), *_all(self.course), *self.must}

    @property
    def must(self) -> set[str]:
        """What finds nothing on any machine."""
        return set(_all(self.run))


def still_waiting() -> StillWaiting:
    """The list."""
    read = yaml.safe_load(LIST.read_text(encoding="utf-8"))
    return StillWaiting(*(_by_reason(read[name]) for name in ("machine", "course", "run")))


def _all(by_reason: dict[str, list[str]]) -> list[str]:
    return [one for places in by_reason.values() for one in places]


def _by_reason(read: dict[str, dict[str, list[str]]]) -> dict[str, list[str]]:
    return {
        reason: [f"{uid}: {where}" for uid, places in boards.items() for where in places]
        for reason, boards in read.items()
    }


def _finds(prometheus: Prometheus, one: Question) -> bool:
    if one.is_instant:
        return bool(prometheus.query(one.expression))
    return prometheus.series_over(one.expression, SHOWN_S) > 0
