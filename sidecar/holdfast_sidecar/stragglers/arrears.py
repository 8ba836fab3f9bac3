"""What was lost before it was known by whom: who is found slow has been so for some ten steps.
They are remembered here, and charged once it is known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from holdfast_sidecar.stragglers.change import KEPT
from holdfast_sidecar.stragglers.frame import Frame
from holdfast_sidecar.stragglers.step_model import StepModel
from holdfast_sidecar.stragglers.trouble import Trouble, apportion


@dataclass
class _Entry:
    """One frame that was judged."""

    after_step: int
    steps: int
    model: StepModel
    charged: dict[tuple[str, ...], float]
    """Accounts -> what they were charged of each step, microseconds."""


@dataclass
class Arrears:
    """Of one attempt, as far back as a rank's own past is known."""

    _entries: deque[_Entry] = field(default_factory=lambda: deque(maxlen=KEPT))

    def note(self, frame: Frame, model: StepModel, costs: Sequence[tuple[Trouble, float]]) -> None:
        """What of this frame was charged to whom, microseconds of a step."""
        charged = {one.accounts: us for one, us in costs}
        steps = frame.step - frame.after_step
        self._entries.append(_Entry(frame.after_step, steps, model.packed(), charged))

    def due(self, troubles: Sequence[Trouble], model: StepModel) -> list[tuple[Trouble, float]]:
        """Who is to be charged how many seconds more for frames before this one.

        All together never more than what they cost together: what was charged to one stays.
        """
        due = []
        for entry in self._entries:
            going_on = [one for one in troubles if one.since_step <= entry.after_step + 1]
            if not going_on:
                continue
            then = [replace(one, quick=_then(one, model, entry.model)) for one in going_on]
            costs = apportion(then, entry.model)
            room = sum(costs) - sum(entry.charged.values())
            wanted = [
                max(0.0, us - entry.charged.get(one.accounts, 0.0))
                for one, us in zip(going_on, costs, strict=True)
            ]
            share = min(1.0, room / sum(wanted)) if sum(wanted) > 0 else 0.0
            if share <= 0:
                continue
            for one, us in zip(going_on, wanted, strict=True):
                if us > 0:
                    before = entry.charged.get(one.accounts, 0.0)
                    entry.charged[one.accounts] = before + share * us
                    due.append((one, share * us * entry.steps / 1e6))
        return due


def _then(one: Trouble, now: StepModel, then: StepModel) -> dict[int, float]:
    """How long its ranks would have taken, were they as much too slow as they are now."""
    return {
        rank: then.own[rank] * us / now.own[rank]
        for rank, us in one.quick.items()
        if rank in then.own and now.own.get(rank, 0.0) > 0
    }
