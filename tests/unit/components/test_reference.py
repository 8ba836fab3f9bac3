from __future__ import annotations

from pathlib import Path

from holdfast_sidecar.components.gpu.nvml import calls
from holdfast_sidecar.nvml import reference

PAGE = Path(__file__).parents[3] / "docs" / "gpus.md"


def test_the_page_tells_every_signal_as_the_table_has_it() -> None:
    assert reference.signals() in PAGE.read_text(), (
        "put the output of `python -m holdfast_sidecar.nvml.reference` into docs/gpus.md"
    )


def test_the_page_explains_our_own_reasons() -> None:
    page = PAGE.read_text()
    for code in (calls.GARBAGE, calls.UNKNOWN_HERE):
        assert calls.reason(None, code) in page
