"""One thing that was looked at, and how it was found."""

from __future__ import annotations

from dataclasses import dataclass

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
