"""What a device can do at best is told by its name, or not at all."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.device_peaks import EIGHT, HALF, SINGLE, TF32, kind_of, peak_flops


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
    assert peak_flops(name, HALF) == pytest.approx(teraflops * 1e12)


@pytest.mark.parametrize("name", ["", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA A10G", "Arc"])
def test_any_other_is_not_known(name: str) -> None:
    assert peak_flops(name, HALF) == 0.0


def test_each_kind_of_number_has_units_of_its_own() -> None:
    name = "NVIDIA H100 80GB HBM3"
    rates = [peak_flops(name, kind) / 1e12 for kind in (EIGHT, HALF, TF32, SINGLE)]
    assert rates == [1979, 989.4, 494.7, 67]
    assert peak_flops("Tesla V100-SXM2-16GB", TF32) == 15.7e12  # it has no such units
    assert peak_flops("Tesla V100-SXM2-16GB", EIGHT) == 0.0


class OldAndNew:
    """Asked in the old way after it was told in the new one, as torch answers that."""

    fp32_precision = "none"

    @property
    def allow_tf32(self) -> bool:
        raise RuntimeError("mixed")


@pytest.mark.parametrize(
    ("dtype", "matmul", "kind"),
    [
        ("float16", None, HALF),
        ("bfloat16", None, HALF),
        ("float8_e4m3fn", None, EIGHT),
        ("float32", SimpleNamespace(allow_tf32=True), TF32),
        ("float32", SimpleNamespace(allow_tf32=True, fp32_precision="ieee"), SINGLE),
        ("float32", SimpleNamespace(allow_tf32=False, fp32_precision="tf32"), TF32),
        ("float32", OldAndNew(), SINGLE),
        ("float32", None, SINGLE),
    ],
)
def test_the_kind_follows_the_type_and_what_the_script_allows(
    dtype: str, matmul: Any, kind: str
) -> None:
    backends = SimpleNamespace(cuda=SimpleNamespace(matmul=matmul))
    torch = SimpleNamespace(float16="float16", bfloat16="bfloat16", backends=backends)
    assert kind_of(torch, dtype) == kind
