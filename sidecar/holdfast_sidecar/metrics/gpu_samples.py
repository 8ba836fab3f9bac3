"""What is told about GPUs, and about what ranks spend on them."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.components.gpu.metrics import REASONS, SHOWN, labelled
from holdfast_sidecar.components.gpu.ownership import Ownership
from holdfast_sidecar.components.gpu.readings import Gpu, Signal, leave_out_garbage
from holdfast_sidecar.picture import Picture
from holdfast_sidecar.records.metric import Sample, Told
from holdfast_sidecar.records.reports import RankEnergy

SET = {True: "on", False: "off", None: ""}
"""How a mode is set; empty: the driver does not say."""


def draw_gpus(picture: Picture, told: Told) -> Iterator[Sample]:
    """Every GPU, and how many there are. Stale values are not told: who they are is."""
    reading = picture.machine.gpu
    if reading is None:
        return
    yield from told("node_gpus_expected", reading.expected)
    if not reading.is_present:
        return
    is_fresh = reading.stale_since_s is None
    if is_fresh:
        yield from told("node_gpus", len([gpu for gpu in reading.gpus if not gpu.lost]))
    read_s = reading.read_at_s
    yield from told(
        "gpu_last_reading_timestamp_seconds", picture.moment.unix_s(read_s) if read_s else None
    )
    for name, gpu in labelled(leave_out_garbage(reading).gpus):
        about = told.about(gpu=name)
        yield from about(
            "gpu_info",
            1,
            uuid=gpu.uuid,
            model=gpu.model,
            pci=gpu.pci,
            driver=reading.driver,
            mig="on" if gpu.is_mig else "off",
            ecc=SET[gpu.is_ecc_on],
            persistence=SET[gpu.is_persistent],
        )
        yield from _draw_ranks(gpu, picture.gpus.ownership, about)
        if is_fresh:
            yield from about("gpu_up", not gpu.lost)
            yield from _draw_values(gpu, about)


def _draw_ranks(gpu: Gpu, ownership: Ownership, told: Told) -> Iterator[Sample]:
    for tie in ownership.of_gpu(gpu.uuid):
        yield from told(
            "gpu_rank_info",
            1,
            rank=str(tie.rank),
            local_rank=str(tie.local_rank),
            known_by=tie.source.value,
        )


def _draw_values(gpu: Gpu, told: Told) -> Iterator[Sample]:
    for shown in SHOWN:
        value = gpu.values.get(shown.signal)
        if value is not None:
            yield from told(shown.name, value, **shown.labels)
    bits = gpu.values.get(Signal.THROTTLE_REASONS)
    if bits is not None:
        for reason, bit in REASONS.items():
            yield from told("gpu_throttled", bool(int(bits) & bit), reason=reason)


def draw_energy(energy: RankEnergy, tokens: int, told: Told) -> Iterator[Sample]:
    """One rank's."""
    yield from told("rank_energy_joules_total", energy.joules)
    yield from told("rank_power_watts", energy.power_w)
    yield from told("rank_step_energy_joules", energy.step_joules)
    yield from told("rank_token_energy_joules", energy.token_joules)
    yield from told("rank_tokens_total", tokens or None)
