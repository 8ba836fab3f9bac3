"""How seldom Python's garbage collector looks through a sidecar: it is there for cycles, of which
hardly any are made; all else goes as soon as nothing holds it.
"""

from __future__ import annotations

import gc

YOUNG = 20_000
"""Objects that came and stayed since the last look (Python's own: 700). What 4,096 ranks tell in a
second, and what is kept of their groups, are ten thousand, gone a second later: by Python's own
number the leader would look through them twenty times a second, through all it has every few, and
find nothing, for a fifth of what judging costs. In cycles so many objects hold a few megabytes."""


def collect_seldom() -> None:
    """Of this process, from now on."""
    _, older, oldest = gc.get_threshold()
    gc.set_threshold(YOUNG, older, oldest)
