"""Incidents as pages for people. Pure, except that paint looks at the terminal."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

from holdfast_sidecar.cli.columns import wrapped
from holdfast_sidecar.cli.kept_here import bundles, failures, in_brief, tell_failures
from holdfast_sidecar.cli.recollection import Recollection
from holdfast_sidecar.cli.table import BAD, GOOD, paint, size, table
from holdfast_sidecar.incidents.advice import advise
from holdfast_sidecar.incidents.explain import Story, describe_decision, sum_up, tell, whom
from holdfast_sidecar.records.formatting import span


def page(story: Story, kept: list[tuple[Path, int]], state: Path) -> str:
    """The story for people: the verdict first, what to do next at the end. `state`: the job's
    directory on this machine."""
    parts = [
        sum_up(story),
        f"incident {story.identifier}, attempt {story.attempt}: {story.cause}, {_outcome(story)}",
        _chapters(story),
        "\n".join([*_summary(story), *tell_failures(failures(state, story))]),
    ]
    if steps := advise(story):
        parts.append("\n".join(_next(step) for step in steps))
    if kept:
        rows = [[name, size(count)] for name, count in in_brief(kept)]
        parts.append(table(["evidence on this machine", "size"], rows))
    if packed := bundles(state, story):
        parts.append("\n".join(["packed, to hand on", *packed]))
    return "\n\n".join(parts)


def plain(story: Story) -> dict[str, Any]:
    """The story for scripts: what `page` tells, by name."""
    return dataclasses.asdict(story) | {"verdict": sum_up(story), "next": advise(story)}


def _next(step: str) -> str:
    return "\n".join(wrapped("next", step, 10))


def _outcome(story: Story) -> str:
    if story.decided == "stop":
        return paint("the job was stopped", BAD)
    if story.is_withheld:
        ended = "it went over into another" if story.went_over_into else "its attempt ended"
        how = "it was over by itself" if story.lost_s is not None else ended
        seen = "seen and left alone"
        return f"{seen} until {how}" if story.is_over else paint(f"{seen}, not over yet", BAD)
    return paint("recovered", GOOD) if story.is_over else paint("not over yet", BAD)


def _chapters(story: Story) -> str:
    rows = [
        [_clock(chapter.at_unix_s), f"+{span(chapter.after_s)}", chapter.what]
        for chapter in story.chapters
    ]
    return table(["time", "after", "what happened"], rows)


def _summary(story: Story) -> list[str]:
    who = whom(story.culprit_node, story.culprit_ranks, story.cause)
    lines = [f"to blame  {who}, {story.confidence:.0%} sure"]
    lines += [f"because   {reason}" for reason in story.reasons or [story.signature] if reason]
    if story.kept_by:
        lines.append(f"kept      evidence of it, on {', '.join(story.kept_by)}")
    done = " ".join(filter(None, (describe_decision(story.decided), story.how)))
    lines.append(f"done      {done or 'nothing yet'}")
    if story.lost_s is not None and story.is_withheld:
        lines.append(f"lasted    {span(story.lost_s)}")
    elif story.lost_s is not None:
        steps = f", {story.lost_steps} step{'s' * (story.lost_steps != 1)} done again"
        again = "" if story.lost_steps is None else steps
        lines.append(f"cost      {span(story.lost_s)} without progress{again}")
    return lines


def listing(records: list[Recollection], now_unix_s: float) -> str:
    """One line for each incident; of several jobs, each with its name."""
    is_one = len(records) == 1
    rows = [
        [
            *(() if is_one else (record.job,)),
            story.identifier,
            f"{span(now_unix_s - story.chapters[0].at_unix_s)} ago",
            str(story.attempt),
            story.cause,
            whom(story.culprit_node, story.culprit_ranks, story.cause),
            story.decided or "-",
            "-" if story.lost_s is None else span(story.lost_s),
            "-" if story.lost_steps is None else str(story.lost_steps),
        ]
        for record in records
        for story in map(tell, record.incidents)
    ]
    if not rows:
        told = [record.without_incident for record in records if record.ending]
        return "\n".join(told) or "no incident so far"
    headings = [] if is_one else ["job"]
    headings += ["incident", "when", "attempt", "cause", "to blame", "done", "time", "steps"]
    return table(headings, rows)


def _clock(unix_s: float) -> str:
    milliseconds = int(unix_s * 1000) % 1000
    return f"{time.strftime('%H:%M:%S', time.localtime(unix_s))}.{milliseconds:03d}"
