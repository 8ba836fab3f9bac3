"""The token that callers show: the one line of a file, exchanged without a restart."""

from __future__ import annotations

import hmac
from pathlib import Path

from holdfast_sidecar.serving.followed import Followed

LEAST = 16
"""Characters: shorter ones are guessed. `openssl rand -hex 32` makes 64."""


class Token:
    """Who shows it is let in. Raises BadInput where the file holds none."""

    def __init__(self, path: Path) -> None:
        self._kept = Followed([path], lambda: parse_token(path.read_bytes()))

    def admits(self, authorization: str) -> bool:
        """Whether this Authorization header shows it; how long that takes tells nothing of it."""
        scheme, _, shown = authorization.partition(" ")
        given = shown.strip().encode("latin-1", "replace")
        return scheme.lower() == "bearer" and hmac.compare_digest(given, self._kept.current())


def parse_token(content: bytes) -> bytes:
    """The token in a file. Raises ValueError, with nothing of it in the words."""
    token = content.strip()
    if len(token) < LEAST:
        raise ValueError(f"a token has at least {LEAST} characters (openssl rand -hex 32)")
    if any(not 0x21 <= byte <= 0x7E for byte in token):
        raise ValueError("a token is one line of letters, digits and signs, without blanks")
    return token
