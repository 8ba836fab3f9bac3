"""What was paged for a killed node, and whether that was right. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast_sidecar.demo.stack.notices import Alert, Notice, all_clear, pages, tickets
from holdfast_sidecar.records.plan import Incident

NODE_LOST = "node_lost"
"""What has to be told as the cause: a crash of its ranks, say, would lead elsewhere."""


@dataclass(frozen=True)
class Killed:
    """The node that was killed. The time is this machine's wall clock."""

    node: str
    attempt: int
    at_unix_s: float


@dataclass(frozen=True)
class Addresses:
    """Where to look while it is up: URLs."""

    prometheus: str
    alertmanager: str
    page: str


@dataclass(frozen=True)
class Verdict:
    """The whole demonstration. Seconds count from the kill; None when it never came."""

    node: str
    seconds: float
    slower: float
    """The shipped waits are so many times as long as those of this demonstration."""
    addresses: Addresses | None = None
    cause: str = ""
    page: Alert | None = None
    paged_s: float | None = None
    back_s: float | None = None
    recovered_s: float | None = None
    resolved_s: float | None = None
    tickets: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        return {**dataclasses.asdict(self), "ok": not self.problems}


PAGED_AT_MOST_S = 120.0
"""After the kill, with the shipped waits; all the more with shorter ones."""


def judge(
    verdict: Verdict, killed: Killed, incident: Incident | None, heard: Sequence[Notice], run: str
) -> Verdict:
    """Fill in what came of it."""
    paged, clear = pages(heard, run), all_clear(heard, run)
    first = _about(paged[0], killed.node) if paged else None
    recovered = incident is not None and incident.recovered_unix_s > 0
    return dataclasses.replace(
        verdict,
        cause="" if incident is None else incident.cause,
        page=first,
        paged_s=paged[0].at_unix_s - killed.at_unix_s if paged else None,
        recovered_s=incident.recovered_unix_s - killed.at_unix_s
        if incident is not None and recovered
        else None,
        resolved_s=clear.at_unix_s - killed.at_unix_s if clear is not None else None,
        tickets=tuple(sorted({name for one in tickets(heard, run) for name in one.names})),
        problems=(
            *verdict.problems,
            *_wrong_pages(paged),
            *_too_late(paged, killed),
            *([] if first is None else _wrong_page(first, killed, incident)),
            *([] if recovered else ["the job did not recover"]),
            *([] if clear is not None or not paged else ["the page was never resolved"]),
        ),
    )


def _about(notice: Notice, node: str) -> Alert | None:
    """The alert of this node where there is one, else the first."""
    named = [alert for alert in notice.alerts if alert.node == node]
    return next(iter([*named, *notice.alerts]), None)


def _wrong_pages(paged: Sequence[Notice]) -> list[str]:
    if not paged:
        return ["nobody was paged"]
    told = [name for one in paged for name in one.names]
    return [f"paged for {', '.join(told)}; should be one alert, once"] if len(told) != 1 else []


def _too_late(paged: Sequence[Notice], killed: Killed) -> list[str]:
    waited_s = paged[0].at_unix_s - killed.at_unix_s if paged else 0.0
    late = waited_s > PAGED_AT_MOST_S
    return [f"paged after {waited_s:.0f} s; {PAGED_AT_MOST_S:g} s at most"] if late else []


def _wrong_page(page: Alert, killed: Killed, incident: Incident | None) -> list[str]:
    problems = []
    if page.node != killed.node:
        problems.append(f"the page is about {page.node or 'no node'}, killed was {killed.node}")
    if incident is None:
        problems.append("Holdfast has recorded no incident")
    elif incident.cause != NODE_LOST:
        problems.append(f"Holdfast took the lost node for {incident.cause}")
    elif incident.cause not in page.description:
        problems.append(f"the page does not tell the cause, {incident.cause}")
    return problems
