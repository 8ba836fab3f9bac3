"""Whether the process group stands: from then on a rank can keep others waiting."""

from __future__ import annotations

import functools
from typing import Any

from holdfast.guard import Guard
from holdfast.page import Flag
from holdfast.recorder import Recorder


def install(torch: Any, recorder: Recorder, guard: Guard) -> None:
    """Hook the group's initialisation."""
    if not torch.distributed.is_available():
        return
    places = (torch.distributed.distributed_c10d, torch.distributed)
    initialise = places[0].init_process_group
    stands = guard.wrap("group", lambda: recorder.add_flag(Flag.GROUP_INITIALISED), None)

    @functools.wraps(initialise)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        answer = initialise(*args, **kwargs)
        stands()
        return answer

    for place in places:
        place.init_process_group = wrapper
