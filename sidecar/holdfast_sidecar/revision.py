"""Which commit this installation was made from, where that is known: pip notes it for what it
installed from a repository (PEP 610), and for nothing else."""

from __future__ import annotations

import json
from functools import cache
from importlib import metadata


@cache
def read_revision(package: str = "holdfast") -> str:
    """The commit; empty where nobody noted it."""
    try:
        noted = metadata.distribution(package).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return ""
    return parse_revision(noted or "")


def parse_revision(direct_url: str) -> str:
    """The commit in pip's note; empty: there is none in it."""
    try:
        return str(json.loads(direct_url)["vcs_info"]["commit_id"])
    except (ValueError, KeyError, TypeError):
        return ""
