"""What the person who started Holdfast can mend: one clear line, exit code 2."""

from __future__ import annotations

EXIT_CODE = 2


class BadInput(Exception):
    """Wrong input; the message is one line that says what is wrong and how to mend it."""
