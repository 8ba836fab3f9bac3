"""What Alertmanager told a webhook, and who was told of what. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from holdfast_sidecar.demo.stack.alerting_files import PAGER, TICKETS, WATCHDOG


@dataclass(frozen=True)
class Alert:
    """One alert of a notice, as people read it."""

    name: str
    run: str
    node: str
    """Empty: it is about the whole run."""
    is_firing: bool
    summary: str
    description: str
    runbook: str


@dataclass(frozen=True)
class Notice:
    """One call of the webhook."""

    receiver: str
    is_firing: bool
    """False: all of it is over."""
    at_unix_s: float
    alerts: tuple[Alert, ...]

    def is_about(self, run: str) -> bool:
        """Whether an alert of this run is in it."""
        return any(alert.run == run for alert in self.alerts)

    @property
    def names(self) -> list[str]:
        """Of the alerts that still fire."""
        return sorted(alert.name for alert in self.alerts if alert.is_firing)


def parse_notice(receiver: str, body: bytes, at_unix_s: float) -> Notice | None:
    """Alertmanager's JSON (version 4); None where it is something else."""
    try:
        return notice_of(receiver, json.loads(body), at_unix_s)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def notice_of(receiver: str, said: dict[str, Any], at_unix_s: float) -> Notice:
    """The same of what was parsed; raises what a dictionary of another shape does."""
    told = said["alerts"]
    alerts = tuple(_alert(one["status"], one["labels"], one["annotations"]) for one in told)
    return Notice(receiver, said["status"] == "firing", at_unix_s, alerts)


def pages(notices: Iterable[Notice], run: str) -> list[Notice]:
    """What woke somebody up for this run."""
    return [one for one in _to(notices, PAGER, run) if one.is_firing]


def tickets(notices: Iterable[Notice], run: str) -> list[Notice]:
    """What somebody reads in the morning."""
    return [one for one in _to(notices, TICKETS, run) if one.is_firing]


def all_clear(notices: Iterable[Notice], run: str) -> Notice | None:
    """The last word of what was paged: it is over."""
    over = [one for one in _to(notices, PAGER, run) if not one.is_firing]
    return over[-1] if over else None


def watchdogs(notices: Iterable[Notice]) -> list[float]:
    """When the dead man's switch was heard."""
    return [one.at_unix_s for one in notices if one.receiver == WATCHDOG and one.is_firing]


def _to(notices: Iterable[Notice], receiver: str, run: str) -> list[Notice]:
    return [one for one in notices if one.receiver == receiver and one.is_about(run)]


def _alert(status: str, labels: dict[str, str], annotations: dict[str, str]) -> Alert:
    return Alert(
        name=labels["alertname"],
        run=labels.get("run", ""),
        node=labels.get("node", ""),
        is_firing=status == "firing",
        summary=annotations.get("summary", ""),
        description=annotations.get("description", ""),
        runbook=annotations.get("runbook_url", ""),
    )
