"""Whether rules name only metrics that there are: Holdfast's own, and what the rules record."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from holdfast_sidecar.export.catalogue import CATALOGUE

WORD = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
RECORDED = re.compile(r"^\s*(?:- )?record:\s*[\"']?([A-Za-z_:][A-Za-z0-9_:]*)", re.MULTILINE)
COMMENT = re.compile(r"^\s*#.*$", re.MULTILINE)
GROUP = re.compile(r"^\s*(?:- )?name:.*$", re.MULTILINE)


def known_names() -> set[str]:
    """Every series of the catalogue; a summary has two."""
    names = {entry.name for entry in CATALOGUE if entry.kind != "summary"}
    summaries = {entry.name for entry in CATALOGUE if entry.kind == "summary"}
    return names | {f"{name}{end}" for name in summaries for end in ("_sum", "_count")}


def used_names(text: str) -> set[str]:
    """Words of a rule file that are names of ours, in expressions and in templates."""
    bare = GROUP.sub("", COMMENT.sub("", text))
    return {word for word in WORD.findall(bare) if "holdfast_" in word}


def unknown_names(texts: Mapping[str, str], known: Iterable[str]) -> list[str]:
    """One line for each name that neither the catalogue nor a rule of these files makes.

    texts: name of a file -> its content.
    """
    recorded = {name for text in texts.values() for name in RECORDED.findall(text)}
    there = {*known, *recorded}
    return [
        f"{file}: {name} is no metric of Holdfast{_like(name, there)}"
        for file, text in texts.items()
        for name in sorted(used_names(text) - there)
    ]


def _like(name: str, there: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, sorted(there), n=1)
    return f" (do you mean {near[0]}?)" if near else ""
