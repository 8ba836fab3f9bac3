"""What moves modules: the merging, and that its proof sees a changed definition."""

from __future__ import annotations

import pytest
from scripts.house.merging import merge, moved_from, split
from scripts.house.proof import definitions

FIRST = '''"""One."""

from __future__ import annotations

import logging

from holdfast_sidecar.two import LIMIT_S

log = logging.getLogger(__name__)


def wait() -> float:
    """So long."""
    return LIMIT_S
'''
SECOND = '"""Two."""\n\nLIMIT_S = 3.0\n'


def test_a_merged_module_has_each_part_once_and_what_a_part_needs_before_it() -> None:
    merged = merge({"one": FIRST, "two": SECOND}, {"one": {"two"}, "two": set()}, "one")
    assert split(merged).docstring == "One."
    assert merged.count("__future__") == merged.count("getLogger") == 1
    assert merged.index("LIMIT_S = 3.0") < merged.index("def wait")
    assert "# Two." in merged


def test_parts_that_need_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="need each other"):
        merge({"one": FIRST, "two": SECOND}, {"one": {"two"}, "two": {"one"}}, "one")


@pytest.mark.parametrize(
    ("old", "new"), [("3.0", "4.0"), ("return LIMIT_S", "return -LIMIT_S"), ("def wait", "def go")]
)
def test_the_proof_sees_what_a_move_must_not_change(old: str, new: str) -> None:
    merged = merge({"one": FIRST, "two": SECOND}, {"one": {"two"}, "two": set()}, "one")
    before = sorted(definitions([FIRST, SECOND]))
    assert sorted(definitions([merged])) == before
    assert sorted(definitions([merged.replace(old, new)])) != before


def test_a_test_that_moves_deeper_still_finds_the_repository() -> None:
    code = "ROOT = Path(__file__).parents[3]\nHERE = Path(__file__).resolve().parents[0]\n"
    moved = moved_from("tests/unit/top/test_a.py", "tests/unit/cli/tui/test_a.py", code)
    assert moved == code.replace("[3]", "[4]")
