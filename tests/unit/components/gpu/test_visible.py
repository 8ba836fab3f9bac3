"""What a process sees, by CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER."""

from __future__ import annotations

import dataclasses

import pytest
from tests.unit.components.gpu.nodes import gpu

from holdfast_sidecar.components.gpu.ownership import visible_gpus

FOUR = [gpu(index) for index in range(4)]
U = [one.uuid for one in FOUR]


@pytest.mark.parametrize(
    ("listed", "seen"),
    [
        (None, U),
        ("", []),
        ("2", [U[2]]),
        ("3,1", [U[3], U[1]]),
        (" 0 , 2 ", [U[0], U[2]]),
        ("-1", []),
        ("0,-1,2", [U[0]]),
        ("1,9,2", [U[1]]),
        ("1,1", []),
        ("0x1", []),
        (U[2], [U[2]]),
        ("GPU-00000001", [U[1]]),
        ("GPU-0000000", []),
        (f"{U[3]},0", [U[3], U[0]]),
        ("GPU-ffff", []),
        ("nonsense", []),
    ],
)
def test_a_list_of_devices_is_read_as_cuda_reads_it(listed: str | None, seen: list[str]) -> None:
    environment = {} if listed is None else {"CUDA_VISIBLE_DEVICES": listed}
    assert visible_gpus(FOUR, environment) == tuple(seen)


def test_nvml_may_list_gpus_in_any_order_and_cuda_counts_by_address() -> None:
    assert visible_gpus(FOUR[::-1], {"CUDA_VISIBLE_DEVICES": "0"}) == (U[0],)


def test_among_different_models_an_index_says_nothing_unless_the_order_is_set() -> None:
    mixed = [dataclasses.replace(FOUR[0], model="Old 100"), *FOUR[1:]]
    assert visible_gpus(mixed, {"CUDA_VISIBLE_DEVICES": "0"}) is None
    assert visible_gpus(mixed, {}) is None
    assert visible_gpus(mixed, {"CUDA_VISIBLE_DEVICES": U[1]}) == (U[1],)
    by_address = {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert visible_gpus(mixed, by_address) == (U[0],)


def test_a_mig_device_is_its_gpus() -> None:
    cut = dataclasses.replace(FOUR[1], is_mig=True, mig_uuids=("MIG-1234-a", "MIG-5678-b"))
    gpus = [FOUR[0], cut]
    assert visible_gpus(gpus, {"CUDA_VISIBLE_DEVICES": "MIG-5678-b"}) == (U[1],)
    older = {"CUDA_VISIBLE_DEVICES": f"MIG-{U[1]}/1/0"}
    assert visible_gpus(gpus, older) == (U[1],)
    two = {"CUDA_VISIBLE_DEVICES": "MIG-1234-a,MIG-5678-b"}
    assert visible_gpus(gpus, two) == (U[1], U[1])
