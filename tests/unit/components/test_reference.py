from __future__ import annotations

from pathlib import Path

import pytest
from scripts.reference import BEGIN, with_signals, with_xids

from holdfast_sidecar.components.gpu.nvml import calls

DOCS = Path(__file__).parents[3] / "docs"


def test_the_page_of_gpus_tells_every_signal_as_the_table_has_it() -> None:
    page = (DOCS / "gpus.md").read_text()
    assert page == with_signals(page), "run python -m scripts.reference"
    row = next(line for line in page.splitlines() if line.startswith("| `busy_ratio`"))
    assert with_signals(page.replace(row, row.replace("busy", "lazy"))) == page


def test_the_page_explains_our_own_reasons() -> None:
    page = (DOCS / "gpus.md").read_text()
    for code in (calls.GARBAGE, calls.UNKNOWN_HERE):
        assert calls.reason(None, code) in page


def test_the_page_of_xids_has_the_tables_of_the_catalog() -> None:
    page = (DOCS / "xids.md").read_text()
    assert page == with_xids(page), "run python -m scripts.reference"


def test_a_page_without_a_place_for_the_tables_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks"):
        with_xids(BEGIN)
