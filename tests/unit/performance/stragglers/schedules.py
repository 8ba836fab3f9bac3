"""A pipeline's step, played through by micro-batches: what GPipe and 1F1B come to exactly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

Task = tuple[bool, int]
"""Whether it is forward, and of which micro-batch."""


def gpipe(stages: int, stage: int, micro_batches: int) -> Iterator[Task]:
    """All forward, then all backward."""
    yield from ((True, number) for number in range(micro_batches))
    yield from ((False, number) for number in range(micro_batches))


def one_f_one_b(stages: int, stage: int, micro_batches: int) -> Iterator[Task]:
    """As many forward as there are stages behind; then one of each in turn."""
    ahead = min(stages - stage - 1, micro_batches)
    yield from ((True, number) for number in range(ahead))
    for number in range(micro_batches - ahead):
        yield True, ahead + number
        yield False, number
    yield from ((False, number) for number in range(micro_batches - ahead, micro_batches))


def lasts(orders: Sequence[Sequence[Task]], times: Sequence[tuple[float, float]]) -> float:
    """How long the step takes, when each stage takes its tasks in this order, each as soon as it is
    free and the task's input is there. times: of one micro-batch, forward and backward."""
    done: dict[tuple[int, Task], float] = {}
    free, following = [0.0] * len(orders), [0] * len(orders)
    while any(at < len(order) for at, order in zip(following, orders, strict=True)):
        for stage, order in enumerate(orders):
            while following[stage] < len(order):
                task = order[following[stage]]
                needs = _needs(stage, task, len(orders))
                if needs is not None and needs not in done:
                    break
                starts = max(free[stage], 0.0 if needs is None else done[needs])
                free[stage] = done[stage, task] = starts + times[stage][0 if task[0] else 1]
                following[stage] += 1
    return max(free)


def _needs(stage: int, task: Task, stages: int) -> tuple[int, Task] | None:
    is_forward, number = task
    if is_forward:
        return (stage - 1, task) if stage else None
    return (stage + 1, task) if stage + 1 < stages else (stage, (True, number))
