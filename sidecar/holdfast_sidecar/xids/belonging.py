"""Which occurrences are of the GPUs that this machine has now: an address says too little. Pure.

The file of a day's history may be shared by machines whose GPUs sit at the same addresses, and a
board may be changed for another within the day.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from holdfast_sidecar.xids.history import History
from holdfast_sidecar.xids.occurrence import Occurrence


def of_these_gpus(history: History, uuids: Mapping[str, str], boot: str) -> History:
    """Without what happened to others, and what happened in this boot marked as these GPUs'.

    uuids: PCI address -> UUID of the GPU there; of an address that is missing nothing is decided.
    """
    kept = tuple(_ours(history, uuids, boot))
    if kept == history.occurrences:
        return history
    others = {one.pci for one in history.occurrences} - {one.pci for one in kept}
    cleared = {pci: at_s for pci, at_s in history.cleared.items() if pci not in others}
    return dataclasses.replace(history, occurrences=kept, cleared=cleared)


def _ours(history: History, uuids: Mapping[str, str], boot: str) -> Iterator[Occurrence]:
    everyone = set(uuids.values())
    for one in history.occurrences:
        # A switch has no UUID: it is known by one of the GPUs behind it.
        here = min(everyone, default="") if one.sxid else uuids.get(one.pci, "")
        is_ours = one.uuid == here or (one.sxid and (one.uuid in everyone or one.boot == boot))
        if not here or (one.uuid and is_ours):
            yield one
        elif not one.uuid and one.boot == boot:
            yield dataclasses.replace(one, uuid=here)
