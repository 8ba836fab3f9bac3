"""What a push would do, or did, in lines. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.grafana.push_plan import PushPlan, Step

LINES_A_BOARD = 40
"""More than these of one dashboard are counted, not listed."""

DONE = {"create": "created", "change": "changed", "same": "unchanged"}


def dry_page(plan: PushPlan) -> str:
    """Line by line: `+` is missing there, `-` too much, `~` otherwise there than it should be."""
    lines = [f"create folder {plan.folder.title} ({plan.folder.uid})"] if plan.makes_folder else []
    for step in plan.steps:
        lines += [f"{step.word:7} {step.board.uid}  {step.board.title}", *_changes(step)]
    return "\n".join([*lines, _sum(plan, would=True)])


def done_page(plan: PushPlan, url: str) -> str:
    """What became of each, and where to look."""
    lines = [
        f"{DONE[step.word]:9} {step.board.title}: {url}/d/{step.board.uid}" for step in plan.steps
    ]
    return "\n".join([*lines, _sum(plan, would=False)])


def _changes(step: Step) -> Iterator[str]:
    yield from (f"  {line}" for line in step.changes[:LINES_A_BOARD])
    if (more := len(step.changes) - LINES_A_BOARD) > 0:
        yield f"  … and {more} more"


def _sum(plan: PushPlan, would: bool) -> str:
    due = len(plan.due)
    if not due:
        return f"all {len(plan.steps)} dashboards are there as they should be; nothing to push"
    where = f"in {plan.folder.title}" if plan.folder.uid else "at the top"
    verb = "would be pushed" if would else "pushed"
    return f"{due} of {len(plan.steps)} dashboards {verb} {where}"
