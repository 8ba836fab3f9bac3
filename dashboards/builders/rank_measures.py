"""How slow a rank is and how long it waits, as expressions; and which ranks are worth a row."""

from __future__ import annotations

from builders.selecting import PER_RUN, of_node, of_run

RUN_OF = "on (cluster, run) group_left ()"


def slowdown() -> str:
    """A rank's own time against that of the run's median rank: 1 is as fast, 2 takes twice as long.

    Own time leaves waiting out: in a job that runs in step all ranks have the same step time.
    """
    own = "holdfast_rank_own_seconds"
    return f"{of_node(own)} / {RUN_OF} quantile {PER_RUN} (0.5, {of_run(own)})"


def waiting() -> str:
    """The share of its step that a rank waits for others: the slow one waits least."""
    own, step = of_node("holdfast_rank_own_seconds"), of_node("holdfast_rank_step_seconds")
    return f"clamp_min(1 - {own} / {step}, 0)"


def behind() -> str:
    """Steps that a rank is behind the furthest one."""
    step = "holdfast_rank_step"
    return f"-({of_node(step)} - {RUN_OF} max {PER_RUN} ({of_run(step)}))"


def of_the_slowest(expression: str) -> str:
    """Only the rows of the ranks that were slowest in the time shown: the same ones all along."""
    own = of_node("holdfast_rank_own_seconds")
    slowest = f"max by (rank) (quantile_over_time(0.9, {own}[$__range] @ end()))"
    return f"max by (rank) ({expression}) and on (rank) topk($ranks, {slowest})"


def of_the_latest(expression: str) -> str:
    """Only the rows of the ranks whose newest step is oldest."""
    stepped = of_node("holdfast_rank_last_step_timestamp_seconds")
    oldest = f"max by (rank) (last_over_time({stepped}[$__range] @ end()))"
    return f"max by (rank) ({expression}) and on (rank) bottomk($ranks, {oldest})"
