"""What an NVLink error's own line says about it: which link, fatal or not, and which kind."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINK5 = re.compile(
    r"(?P<unit>[A-Z][A-Z0-9_/]+)\s+(?P<word>Fatal|Nonfatal|Non-fatal)\s+XC\S*\s+i\S*\s+"
    r"Link\s+(?P<link>-?\d+)(?:\s*\(\s*(?P<words>0x[0-9a-fA-F][0-9a-fxA-FX\s]*)\))?"
)
_LINK4 = re.compile(r"detected on link\s+(?P<link>\d+)\s*(?:\((?P<words>[^)]*)\))?")

_FIRST_REGISTER = (
    ((21, 22), "a marginal signal on the link"),
    ((4, 5), "ECC or parity in the link's own memory"),
)
"""Bits of the first register on Hopper and before, and what they say."""


@dataclass(frozen=True)
class LinkError:
    """One NVLink error. `link` is -1 where the line names none."""

    link: int
    unit: str = ""
    is_fatal: bool | None = None
    sub_code: int | None = None
    error_status: int | None = None
    hints: tuple[str, ...] = ()

    @property
    def told(self) -> str:
        """In words."""
        parts = [f"link {self.link}" if self.link >= 0 else "no one link"]
        if self.unit:
            parts.append(f"{self.unit} {'fatal' if self.is_fatal else 'not fatal'}")
        if self.sub_code is not None:
            parts.append(f"sub-code {self.sub_code}")
        if self.error_status is not None:
            parts.append(f"error status {self.error_status:#x}")
        return ", ".join((*parts, *self.hints))


def parse_link_error(text: str) -> LinkError | None:
    """Of XIDs 144 to 150, and of 74; None where the text holds none."""
    found = _LINK5.search(text)
    if found:
        words = _numbers(found["words"] or "")
        return LinkError(
            link=int(found["link"]),
            unit=found["unit"],
            is_fatal=found["word"] == "Fatal",
            sub_code=(words[0] >> 20) & 0x3F if words else None,
            error_status=words[1] if len(words) > 1 else None,
        )
    found = _LINK4.search(text)
    if found:
        return LinkError(int(found["link"]), hints=_hints(_numbers(found["words"] or "")))
    return None


def _numbers(text: str) -> list[int]:
    return [int(word, 16) for word in re.findall(r"0x[0-9a-fA-F]+", text)]


def _hints(registers: list[int]) -> tuple[str, ...]:
    first = registers[0] if registers else 0
    return tuple(text for bits, text in _FIRST_REGISTER if any(first >> bit & 1 for bit in bits))
