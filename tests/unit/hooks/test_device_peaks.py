"""What a device can do at best is told by its name, or not at all."""

from __future__ import annotations

import pytest

from holdfast.recording.device_peaks import peak_flops


@pytest.mark.parametrize(
    ("name", "teraflops"),
    [
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA A100 80GB PCIe", 312),
        ("NVIDIA A10", 125),
        ("NVIDIA H100 80GB HBM3", 989.4),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H200", 989.4),
        ("NVIDIA GH200 480GB", 989.4),
        ("NVIDIA H20", 148),
        ("NVIDIA B200", 2250),
        ("NVIDIA GB200", 2500),
        ("NVIDIA L4", 121),
        ("NVIDIA L40S", 362),
        ("Tesla V100-SXM2-16GB", 125),
        ("Tesla T4", 65),
        ("AMD Instinct MI300X", 1307.4),
        ("AMD Instinct MI250X / MI250", 191.5),
    ],
)
def test_a_device_that_is_listed_is_known_by_the_name_torch_gives_it(
    name: str, teraflops: float
) -> None:
    assert peak_flops(name) == pytest.approx(teraflops * 1e12)


@pytest.mark.parametrize("name", ["", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA A10G", "Arc"])
def test_any_other_is_not_known(name: str) -> None:
    assert peak_flops(name) == 0.0
