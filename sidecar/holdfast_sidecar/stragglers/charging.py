"""Puts the time that a frame lost down to those who are slow in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast_sidecar.stragglers.arrears import Arrears
from holdfast_sidecar.stragglers.frame import Frame
from holdfast_sidecar.stragglers.place import Place
from holdfast_sidecar.stragglers.step_model import StepModel
from holdfast_sidecar.stragglers.toll import Toll
from holdfast_sidecar.stragglers.trouble import Trouble, apportion


def charge(
    troubles: Sequence[Trouble],
    frame: Frame,
    model: StepModel,
    places: Mapping[int, Place],
    toll: Toll,
    arrears: Arrears,
) -> None:
    """Of who was not known to be slow before, also what was lost since then."""
    steps = frame.step - frame.after_step
    opened = [toll.open(one.accounts, one.named.cause, one.since_step) for one in troubles]
    costs = list(zip(troubles, apportion(troubles, model), strict=True))
    # Of who is slow in some steps only it is known what those before cost.
    steady = [(one, us) for one, us in costs if not one.recurs]
    due = arrears.due([one for one, _ in steady], model) if any(opened) else []
    arrears.note(frame, model, steady)
    now = [(one, (us * steps + one.owed_us) / 1e6) for one, us in costs]
    for trouble, lost_s in (*due, *now):
        toll.charge(trouble.accounts, lost_s)
        if trouble.blames_ranks:
            names = [f"{rank} on {places[rank].node}" for rank in trouble.ranks]
            toll.charge_ranks(names, lost_s)
    toll.close_others([name for one in troubles for name in one.accounts], frame.step)
