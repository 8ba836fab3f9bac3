"""What devices can compute at best, by their names: dense matrix products of 16-bit floats, from
data sheets, 1e12 a second.

Vendors print twice as much for sparse ones; no training gets that. A name that is not listed, a
slice of a GPU (MIG) among them, is not known: better no utilisation than a wrong one.
"""

from __future__ import annotations

import re

_PEAKS = (
    # NVIDIA data sheets of each product, without sparsity. More telling names come first.
    (r"\bGB[23]00\b", 2500),
    (r"\bB[23]00\b", 2250),
    (r"\bH200 NVL\b", 835.5),
    (r"\bH200\b|\bGH200\b", 989.4),
    (r"\bH100 PCIe\b", 756),
    (r"\bH100 NVL\b", 835.5),
    (r"\bH100\b|\bH800\b", 989.4),
    (r"\bH20\b", 148),
    (r"\bA100\b|\bA800\b", 312),
    (r"\bA30\b", 165),
    (r"\bA40\b", 149.7),
    (r"\bA10\b", 125),
    (r"\bRTX A6000\b", 154.8),
    (r"\bL40S\b", 362),
    (r"\bL40\b", 181),
    (r"\bL4\b", 121),
    (r"\bV100-(SXM2|SXM3)\b", 125),
    (r"\bV100-PCIE\b", 112),
    (r"\bV100S-PCIE\b", 130),
    (r"\bT4\b", 65),
    # AMD's, "peak" rows of the Instinct data sheets. Torch sees each half of an MI250 apart.
    (r"\bMI355X\b", 2516.6),
    (r"\bMI350X\b", 2306.9),
    (r"\bMI325X\b|\bMI300X\b", 1307.4),
    (r"\bMI300A\b", 980.6),
    (r"\bMI250X\b", 191.5),
    (r"\bMI250\b", 181),
    (r"\bMI210\b", 181),
)


def peak_flops(name: str) -> float:
    """Operations a second of the device of this name; 0: not known."""
    if re.search(r"\bMIG\b", name):
        return 0.0
    for pattern, peak in _PEAKS:
        if re.search(pattern, name):
            return peak * 1e12
    return 0.0
