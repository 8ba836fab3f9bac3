from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_sidecar.xids.reference import BEGIN, with_tables

PAGE = Path(__file__).parents[3] / "docs" / "xids.md"


def test_the_tables_in_the_docs_are_current() -> None:
    page = PAGE.read_text()
    assert page == with_tables(page), "run python -m holdfast_sidecar.xids.reference"


def test_a_page_without_a_place_for_them_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks"):
        with_tables(BEGIN)
