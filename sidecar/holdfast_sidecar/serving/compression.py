"""Answers made smaller for those who can make them whole again."""

from __future__ import annotations

import gzip

LEAST_BYTES = 1024
"""A packet's worth: below it nothing is won."""

LEVEL = 1
"""The page is the same words over and over: the first level brings most of it, in a third of the
time that the sixth takes."""


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether this Accept-Encoding header takes gzip."""
    for part in accept_encoding.split(","):
        name, _, weight = part.partition(";")
        if name.strip().lower() in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def compress(body: bytes) -> bytes:
    """The body as gzip; the same for the same body."""
    return gzip.compress(body, LEVEL, mtime=0)
