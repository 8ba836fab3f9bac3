"""PromQL taken apart as far as a check of names needs it: selectors, and what they stand inside.

No parser of the whole language: what it can't read it passes over, as whether an expression is
valid is promtool's to say. Grafana's variables may stand wherever they do there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

AGGREGATIONS = frozenset(
    {
        *("sum", "avg", "min", "max", "count", "group", "stddev", "stdvar", "quantile"),
        *("topk", "bottomk", "limitk", "count_values"),
    }
)
_LABEL_LISTS = frozenset(["by", "without", "on", "ignoring", "group_left", "group_right"])
_WORDS = frozenset(["and", "or", "unless", "atan2", "bool", "offset", "start", "end", "inf", "nan"])
_NEW_LABELS = frozenset(["label_replace", "label_join", "count_values"])
"""Functions that make labels of their own: what stands in their strings may be one."""

_TOKEN = re.compile(
    r"""(?P<blank>\s+|\#[^\n]*)
      | (?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`)
      | (?P<variable>\$\{[^}]*\}|\$\w+|\[\[\w+\]\])
      | (?P<number>(?:0[xX][0-9a-fA-F]+|\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)[a-z0-9]*)
      | (?P<word>[a-zA-Z_:][a-zA-Z0-9_:]*)
      | (?P<sign>=~|!~|!=|==|<=|>=|.)
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Token:
    """A word, a sign, a string without its quotes."""

    kind: str
    text: str


@dataclass(frozen=True)
class Selector:
    """Series by name, with the labels that are asked for."""

    name: str
    labels: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()
    """Functions and aggregations around it, the nearest first."""
    place: int = 0


@dataclass(frozen=True)
class LabelList:
    """`by (...)`, `on (...)` and the like."""

    word: str
    labels: tuple[str, ...]
    about: tuple[Selector, ...]
    """For `by` and `without` what is aggregated; else all there is."""


@dataclass
class Expression:
    """What stands in it."""

    selectors: list[Selector] = field(default_factory=list)
    lists: list[LabelList] = field(default_factory=list)
    new_labels: set[str] = field(default_factory=set)
    """What labels that it makes itself may be called."""


def take_apart(text: str) -> Expression:
    """The expression's selectors and lists of labels. Never raises."""
    return _Reader(list(tokens(text))).read()


def tokens(text: str) -> Iterator[Token]:
    """All but blanks and comments."""
    for match in _TOKEN.finditer(text):
        kind, found = str(match.lastgroup), match.group()
        if kind == "string":
            yield Token(kind, found[1:-1])
        elif kind != "blank":
            yield Token(kind, found)


@dataclass
class _Call:
    """An open parenthesis."""

    name: str
    first: int
    """Number of selectors before it."""
    by: tuple[str, tuple[str, ...]] | None = None


class _Reader:
    """One walk over the tokens."""

    def __init__(self, found: list[Token]) -> None:
        self._tokens = found
        self._at = 0
        self._open: list[_Call] = []
        self._lists: list[tuple[str, tuple[str, ...]]] = []
        self._found = Expression()

    def read(self) -> Expression:
        """To the end."""
        while self._at < len(self._tokens):
            self._step()
        about = tuple(self._found.selectors)
        for word, labels in self._lists:
            self._found.lists.append(LabelList(word, labels, about))
        return self._found

    def _step(self) -> None:
        token = self._next()
        if token.kind == "word":
            self._word(token.text)
        elif token.kind == "string":
            if any(call.name in _NEW_LABELS for call in self._open):
                self._found.new_labels.add(token.text)
        elif token.text == "(":
            self._open.append(_Call("", len(self._found.selectors)))
        elif token.text == ")":
            self._close()
        elif token.text == "[":
            self._pass_to("]")
        elif token.text == "{":
            self._selector("")

    def _word(self, word: str) -> None:
        lower = word.lower()
        if lower in _LABEL_LISTS:
            labels = self._labels()
            if lower in ("on", "ignoring", "group_left", "group_right"):
                self._lists.append((lower, labels))
        elif lower in AGGREGATIONS:
            self._aggregation(lower)
        elif self._peek() == "(":
            self._at += 1
            self._open.append(_Call(lower, len(self._found.selectors)))
        elif lower not in _WORDS:
            self._selector(word)

    def _aggregation(self, name: str) -> None:
        by = self._modifier()
        if self._peek() == "(":
            self._at += 1
            self._open.append(_Call(name, len(self._found.selectors), by))

    def _modifier(self) -> tuple[str, tuple[str, ...]] | None:
        """`by (...)` or `without (...)`, if that comes next."""
        word = self._peek().lower()
        if word not in ("by", "without"):
            return None
        self._at += 1
        return word, self._labels()

    def _close(self) -> None:
        if not self._open:
            return
        call = self._open.pop()
        if call.name not in AGGREGATIONS:
            return
        by = call.by or self._modifier()
        if by is not None:
            about = tuple(self._found.selectors[call.first :])
            self._found.lists.append(LabelList(*by, about))

    def _labels(self) -> tuple[str, ...]:
        """What stands in the parentheses that come next, if any do."""
        if self._peek() != "(":
            return ()
        self._at += 1
        return tuple(t.text for t in self._pass_to(")") if t.kind in ("word", "string"))

    def _selector(self, name: str) -> None:
        """A name, its matchers; or matchers alone, when their brace is already passed."""
        names, labels = [name] * bool(name), []
        if not name or self._peek() == "{":
            self._at += bool(name)
            inner = self._pass_to("}")
            for label, sign, value in zip(inner, inner[1:], inner[2:], strict=False):
                if sign.text not in ("=", "!=", "=~", "!~") or label.kind not in ("word", "string"):
                    continue
                if label.text != "__name__":
                    labels.append(label.text)
                elif sign.text == "=" or re.fullmatch(r"[\w:|()]+", value.text):
                    names += [one for one in re.split(r"[|()]", value.text) if one]
        inside = tuple(call.name for call in reversed(self._open) if call.name)
        for one in names:
            place = len(self._found.selectors)
            self._found.selectors.append(Selector(one, tuple(labels), inside, place))

    def _pass_to(self, end: str) -> list[Token]:
        """What stands before the next such sign, which is passed too."""
        start = self._at
        while self._at < len(self._tokens):
            token = self._next()
            if token.kind == "sign" and token.text == end:
                return self._tokens[start : self._at - 1]
        return self._tokens[start:]

    def _next(self) -> Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _peek(self) -> str:
        if self._at >= len(self._tokens) or self._tokens[self._at].kind == "string":
            return ""
        return self._tokens[self._at].text
