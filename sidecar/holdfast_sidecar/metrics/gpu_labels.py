"""Which GPU is which on the page: by its index, as everywhere else."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast_sidecar.readings.gpu import Gpu


def labelled(gpus: Iterable[Gpu]) -> list[tuple[str, Gpu]]:
    """Each with its label; no label twice, or a scrape would have the same series with two values.

    The driver counts anew when it begins anew: one that is gone by then may have the index that
    another has now, and is told by its PCI address.
    """
    found: dict[str, Gpu] = {}
    for gpu in sorted(gpus, key=lambda gpu: bool(gpu.lost)):
        names = (str(gpu.index), gpu.pci, gpu.uuid)
        name = next((name for name in names if name and name not in found), "")
        if name:
            found[name] = gpu
    return list(found.items())
