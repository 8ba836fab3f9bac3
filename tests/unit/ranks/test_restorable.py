from __future__ import annotations

import dataclasses

from tests.unit.ranks.scene import look, moment

from holdfast_sidecar.ranks.checks import find_unrestorable
from holdfast_sidecar.records.findings import Kind


def test_what_several_ranks_could_not_restore_is_one_finding() -> None:
    told = {0: ("ema holds …", "optimizer is …"), 1: ("ema holds …",), 2: ()}
    looks = [
        dataclasses.replace(look(10.0, rank=rank), unrestorable=reasons)
        for rank, reasons in told.items()
    ]
    ema, optimizer = find_unrestorable(looks, moment(10.0))
    assert (ema.kind, ema.what, ema.ranks) == (Kind.NOT_RESTORABLE, "ema", [0, 1])
    assert (optimizer.evidence, optimizer.ranks) == (["optimizer is …"], [0])
    assert not ema.acts
