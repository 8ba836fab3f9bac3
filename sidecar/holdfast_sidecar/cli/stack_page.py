"""What `holdfast demo --stack` prints: who was called, with what words, and how soon."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from holdfast_sidecar.cli.table import BAD, GOOD, paint, table
from holdfast_sidecar.demo.stack.outcome import Verdict

HEADINGS = ("what", "after the kill")


def stack_page(verdict: Verdict) -> str:
    """The page, its times, and where to look while all is up."""
    lines = ["", *_page(verdict), "", table(HEADINGS, _times(verdict)), *_waits(verdict), ""]
    if verdict.addresses is not None:
        shown = dataclasses.asdict(verdict.addresses)
        lines += [*(f"{what:12}  {url}" for what, url in shown.items()), ""]
    lines += [paint(f"failed: {problem}", BAD) for problem in verdict.problems]
    return "\n".join([*lines, f"{verdict.seconds:.0f} s in all"])


def _page(verdict: Verdict) -> Iterator[str]:
    page = verdict.page
    if page is None:
        yield "nobody was paged"
        return
    yield paint(f"paged: {page.name}", BAD if verdict.problems else GOOD)
    yield f"  {page.summary}"
    yield f"  run {page.run}, node {page.node or '-'}, cause {verdict.cause or '-'}"
    yield f"  {page.description}"
    yield f"  runbook {page.runbook}"
    yield f"tickets: {', '.join(verdict.tickets) or 'none'}"


def _times(verdict: Verdict) -> list[list[str]]:
    return [
        ["somebody was paged", _seconds(verdict.paged_s)],
        ["the node was started again", _seconds(verdict.back_s)],
        ["every rank stepped again", _seconds(verdict.recovered_s)],
        ["the page was resolved", _seconds(verdict.resolved_s)],
    ]


def _waits(verdict: Verdict) -> list[str]:
    if verdict.slower == 1:
        return []
    return [f"the waits of rules and routes are {verdict.slower:g} times shorter than the shipped"]


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} s"
