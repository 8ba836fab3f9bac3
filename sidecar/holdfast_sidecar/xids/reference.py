"""Writes the tables of docs/xids.md out of the data: `python -m holdfast_sidecar.xids.reference`.

What lies around them is written by hand.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from holdfast_sidecar.components.xid.catalog import ACTIONS, FATAL_SXIDS, XIDS, Entry

BEGIN = "<!-- Made by `python -m holdfast_sidecar.xids.reference`: -->"
END = "<!-- until here. -->"


def tables() -> str:
    """XIDs, SXids and recovery actions."""
    return "\n".join([*_xids(), "", *_actions(), "", *_sxids()])


def with_tables(page: str) -> str:
    """The page with its tables made anew. Raises ValueError where it has no place for them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks the lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}"


def _xids() -> Iterator[str]:
    yield "| XID | name | what happened | remedy | besides | 0 lowers it from | note |"
    yield "|---|---|---|---|---|---|---|"
    for entry in XIDS.values():
        yield _row(entry)


def _row(entry: Entry) -> str:
    besides = ", ".join(follow.value for follow in entry.follow_ups)
    linked = f"R{entry.linked_since}" if entry.linked_since else ""
    note = entry.note
    if entry.on_repeat is not None:
        again = f"again within 24 h: {entry.on_repeat.value}"
        note = f"{note}; {again}" if note else again
    cells = (
        *(str(entry.number), f"`{entry.mnemonic}`", entry.meaning, entry.remedy.value),
        *(besides, linked, note),
    )
    return f"| {' | '.join(cells)} |"


def _actions() -> Iterator[str]:
    yield "| field 230 | the driver asks for | remedy | ends running work |"
    yield "|---|---|---|---|"
    for value, action in ACTIONS.items():
        urgent = "yes" if action.ends_work else "no"
        yield f"| {value} | {action.name} | {action.remedy.value} | {urgent} |"


def _sxids() -> Iterator[str]:
    yield "| SXid | what happened |"
    yield "|---|---|"
    for number, meaning in sorted(FATAL_SXIDS.items()):
        yield f"| {number} | {meaning} |"


def main() -> None:
    """Write the tables into the page given, or into docs/xids.md."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs/xids.md")
    path.write_text(with_tables(path.read_text()))


if __name__ == "__main__":
    main()
