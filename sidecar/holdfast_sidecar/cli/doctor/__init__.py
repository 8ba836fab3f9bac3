"""What `holdfast doctor` looks at, one file per part of the machine.

Nothing is changed: a directory that has to be made to see whether it can be is removed again.
"""

from __future__ import annotations

from dataclasses import dataclass

# One thing that was looked at, and how it was found.

OK, NOTE, WARN, FAIL = "ok", "note", "warn", "fail"
"""`note` is worth knowing in some setups; `warn` loses something; `fail` will not work."""


@dataclass(frozen=True)
class Check:
    """What was looked at, the verdict, and one line: what is so and how to mend it."""

    what: str
    verdict: str
    line: str
    part: str = ""
    """Of the machine or the setup: the heading under which it is shown."""
