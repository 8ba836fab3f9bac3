"""Small files that a rank keeps beside its page, for its sidecar to read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_beside(path: Path, told: Mapping[str, Any]) -> None:
    """Write JSON under a temporary name, then rename it."""
    draft = path.with_name(path.name + ".new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(draft, flags, 0o600), "w") as file:
        json.dump(told, file, separators=(",", ":"))
    draft.replace(path)
