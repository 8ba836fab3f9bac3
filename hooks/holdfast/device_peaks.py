"""What devices can compute at best, by their names: dense matrix products, from data sheets.

Vendors print twice as much for sparse ones; no training gets that. A name that is not listed, a
slice of a GPU (MIG) among them, is not known: better no utilisation than a wrong one.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

HALF, EIGHT, TF32, SINGLE = "half", "eight", "tf32", "single"
"""bfloat16 and float16; 8-bit floats; float32 on tensor cores with shorter products; float32."""


class Peak(NamedTuple):
    """Of one device as torch sees it, 1e12 operations a second; 0: it has no such units."""

    half: float
    tf32: float
    single: float
    eight: float = 0.0


_PEAKS = (
    # NVIDIA data sheets of each product, without sparsity. More telling names come first.
    (r"\bGB[23]00\b", Peak(2500, 1250, 80, 5000)),
    (r"\bB[23]00\b", Peak(2250, 1125, 75, 4500)),
    (r"\bH200 NVL\b", Peak(835.5, 417.5, 60, 1670.5)),
    (r"\bH200\b|\bGH200\b", Peak(989.4, 494.7, 67, 1979)),
    (r"\bH100 PCIe\b", Peak(756, 378, 51, 1513)),
    (r"\bH100 NVL\b", Peak(835.5, 417.5, 60, 1670.5)),
    (r"\bH100\b|\bH800\b", Peak(989.4, 494.7, 67, 1979)),
    (r"\bH20\b", Peak(148, 74, 44, 296)),
    (r"\bA100\b|\bA800\b", Peak(312, 156, 19.5)),
    (r"\bA30\b", Peak(165, 82, 10.3)),
    (r"\bA40\b", Peak(149.7, 74.8, 37.4)),
    (r"\bA10\b", Peak(125, 62.5, 31.2)),
    (r"\bRTX A6000\b", Peak(154.8, 77.4, 38.7)),
    (r"\bL40S\b", Peak(362, 183, 91.6, 733)),
    (r"\bL40\b", Peak(181, 90.5, 90.5, 362)),
    (r"\bL4\b", Peak(121, 60, 30.3, 242.5)),
    (r"\bV100-(SXM2|SXM3)\b", Peak(125, 0, 15.7)),
    (r"\bV100-PCIE\b", Peak(112, 0, 14)),
    (r"\bV100S-PCIE\b", Peak(130, 0, 16.4)),
    (r"\bT4\b", Peak(65, 0, 8.1)),
    # AMD's, "peak" rows of the Instinct data sheets. Torch sees each half of an MI250 apart.
    (r"\bMI355X\b", Peak(2516.6, 0, 157.3, 5033.2)),
    (r"\bMI350X\b", Peak(2306.9, 0, 144.2, 4613.7)),
    (r"\bMI325X\b|\bMI300X\b", Peak(1307.4, 653.7, 163.4, 2614.9)),
    (r"\bMI300A\b", Peak(980.6, 490.3, 122.6, 1961.2)),
    (r"\bMI250X\b", Peak(191.5, 0, 47.9)),
    (r"\bMI250\b", Peak(181, 0, 45.3)),
    (r"\bMI210\b", Peak(181, 0, 45.3)),
)


def peak_flops(name: str, kind: str) -> float:
    """Operations a second of the device of this name on numbers of this kind; 0: not known."""
    if re.search(r"\bMIG\b", name):
        return 0.0
    for pattern, peak in _PEAKS:
        if re.search(pattern, name):
            rate = peak.single if kind == TF32 and not peak.tf32 else getattr(peak, kind)
            return float(rate) * 1e12
    return 0.0


def kind_of(torch: Any, dtype: Any) -> str:
    """The kind of number whose units a matrix product of this type uses."""
    if dtype in (torch.float16, torch.bfloat16):
        return HALF
    if "float8" in str(dtype):
        return EIGHT
    return TF32 if _shortens_products(torch) else SINGLE


def _shortens_products(torch: Any) -> bool:
    matmul = getattr(getattr(torch.backends, "cuda", None), "matmul", None)
    said = getattr(matmul, "fp32_precision", "none")
    if said != "none":
        return bool(said == "tf32")
    try:
        return bool(getattr(matmul, "allow_tf32", False))
    except RuntimeError:  # said in the new way for one library and in the old for another
        return False
