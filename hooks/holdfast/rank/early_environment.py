"""Whether a script set variables that torch's libraries read while they are loaded.

Such a script must start in a new interpreter: in a warm one those libraries are loaded already.
"""

from __future__ import annotations

from collections.abc import Mapping

READ_AT_LOAD = (
    "ATEN_",
    "BLIS_",
    "DNNL_",
    "GOMP_",
    "KMP_",
    "LD_",
    "MALLOC_",
    "MKL_",
    "NPY_",
    "NUMEXPR_",
    "OMP_",
    "ONEDNN_",
    "OPENBLAS_",
    "PYTORCH_",
    "TORCH_",
)
"""Prefixes of such variables. CUDA, NCCL and gloo read theirs when they are first used."""


def is_changed(initial: bytes, now: Mapping[str, str]) -> bool:
    """Whether one differs between /proc/self/environ (as it was at exec) and the environment."""
    entries = (entry.partition(b"=") for entry in initial.split(b"\0") if entry)
    before = {
        name.decode(errors="surrogateescape"): value.decode(errors="surrogateescape")
        for name, _, value in entries
    }
    return any(
        before.get(name) != now.get(name)
        for name in before.keys() | now.keys()
        if name.startswith(READ_AT_LOAD)
    )


def read_is_changed(now: Mapping[str, str]) -> bool:
    """The same of this process; True where /proc can't tell."""
    try:
        with open("/proc/self/environ", "rb") as file:  # noqa: PTH123 - no pathlib at start
            return is_changed(file.read(), now)
    except OSError:
        return True
