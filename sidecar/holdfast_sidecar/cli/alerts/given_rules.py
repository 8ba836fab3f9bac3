"""The rule files that a person gave: read, and laid out so that promtool can read them too."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast_sidecar.cli.alerts.programs import Said
from holdfast_sidecar.cli.alerts.rule_objects import is_of_kubernetes, rules_within
from holdfast_sidecar.config.settings import BadInput


@dataclass(frozen=True)
class RuleText:
    """A file, and what Prometheus would read of it: all, or the rules of each object in it."""

    path: Path
    whole: str
    parts: Sequence[str]

    @property
    def is_plain(self) -> bool:
        """Whether Prometheus reads it as it is."""
        return list(self.parts) == [self.whole]


def read_given(path: Path) -> RuleText:
    """BadInput where there is no text."""
    text = read(path)
    return RuleText(path, text, rules_within(text) if is_of_kubernetes(text) else [text])


def is_empty(text: str) -> bool:
    """Whether comments are all that is in it."""
    lines = (line.strip() for line in text.splitlines())
    return all(line in ("", "---", "...") or line.startswith("#") for line in lines)


def read(path: Path) -> str:
    """A file's text; BadInput where there is none."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise BadInput(f"can't read {path}: {why}") from None


@contextmanager
def laid_out(rules: Sequence[RuleText]) -> Iterator[dict[Path, Path]]:
    """Files for promtool -> those of the person: the rules of objects get some of their own."""
    with tempfile.TemporaryDirectory(prefix="holdfast-alerts-") as folder:
        files: dict[Path, Path] = {}
        for rule in rules:
            if rule.is_plain:
                files[rule.path] = rule.path
                continue
            for part in rule.parts:
                file = Path(folder) / f"{len(files)}.yaml"
                file.write_text(part)
                files[file] = rule.path
        yield files


def told_of(said: Said, files: dict[Path, Path]) -> Said:
    """The same with the person's file where promtool names ours."""
    lines = list(said.lines)
    for ours, theirs in files.items():
        lines = [line.replace(str(ours), str(theirs)) for line in lines]
    return replace(said, lines=lines)
