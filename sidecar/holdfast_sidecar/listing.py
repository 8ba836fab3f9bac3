"""Looking through directories of which others remove some meanwhile."""

from __future__ import annotations

import glob
from pathlib import Path


def find(root: Path, pattern: str) -> list[Path]:
    """What is there by this pattern below `root`, in order; nothing of what just went.

    `Path.glob` raises where a directory goes between being found and being opened (until Python
    3.13): jobs end and old evidence is removed while somebody looks at all of it.
    """
    names = glob.glob(pattern, root_dir=root)  # noqa: PTH207 - see above
    return [root / name for name in sorted(names)]
