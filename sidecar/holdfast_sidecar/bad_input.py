"""The one exception for what a person can mend: one clear line, exit code 2."""

from __future__ import annotations


class BadInput(Exception):  # noqa: N818 - reads as what it is where it is raised
    """What is wrong and how to mend it, in one line; the command line prints it and exits 2."""
