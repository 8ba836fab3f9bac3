"""PromQL taken apart as far as a check of names needs it: selectors, and what they stand inside.

No parser of the whole language: what it can't read it passes over, as whether an expression is
valid is promtool's to say. Grafana's variables may stand wherever they do there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from holdfast_sidecar.export.catalogue import CATALOGUE
from holdfast_sidecar.records.metric import MetricSpec

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


# Whether an expression of a rule or a dashboard fits the catalogue. Pure; whether it is valid
# PromQL at all is promtool's to say.

OF_PROMETHEUS = (
    "up",
    "ALERTS",
    "ALERTS_FOR_STATE",
    "scrape_duration_seconds",
    "scrape_samples_scraped",
)
"""Series that Prometheus makes itself."""

EVERYWHERE = frozenset({"run", "job", "cluster", "__name__"})
"""Labels that every series has: `job` from the scrape, `cluster` where somebody sets one."""

OF_A_TARGET = frozenset({"instance", "node"})
"""Labels that whatever a sidecar tells of itself has, and the job's series have not."""

OF_COUNTERS = frozenset({"rate", "irate", "increase", "resets"})
"""A gauge that falls looks to them like a counter that begins again."""

COUNTING = OF_COUNTERS | {"changes"}
"""What counters are for."""

WHETHER = frozenset(
    {
        "absent",
        "absent_over_time",
        "count",
        "count_over_time",
        "group",
        "present_over_time",
        "timestamp",
    }
)
"""Of these the value does not matter."""

OF_GAUGES = frozenset({"delta", "idelta", "deriv", "predict_linear", "holt_winters"})
"""A counter that begins again looks to them like a fall."""


@dataclass(frozen=True)
class ExpressionError:
    """Where an expression does not fit the catalogue."""

    kind: str
    """unknown, label, bare_counter, rate_of_gauge."""
    name: str
    """The metric."""
    words: str
    """One clear line."""


def names(expression: str) -> set[str]:
    """Metrics that it selects."""
    return {selector.name for selector in take_apart(expression).selectors}


def troubles(
    expression: str,
    *,
    recorded: Collection[str] = (),
    others: Collection[str] = OF_PROMETHEUS,
) -> list[ExpressionError]:
    """What does not fit, in the order in which it stands there; empty: all does.

    recorded: names that rules record; others: further series that are known to be there.
    """
    taken = take_apart(expression)
    found: list[ExpressionError] = []
    for selector in taken.selectors:
        if selector.name in BY_NAME:
            found += _judge(selector, BY_NAME[selector.name])
        elif selector.name not in recorded and selector.name not in others:
            words = f"{selector.name} is not in the catalogue"
            found.append(ExpressionError("unknown", selector.name, words))
    for labels in taken.lists:
        found += _judge_list(labels, taken.new_labels)
    return list(dict.fromkeys(found))


def known_labels(entry: MetricSpec) -> frozenset[str]:
    """Labels that its series have on the server, those of the target with them."""
    of_target: frozenset[str] = frozenset() if entry.leader_only else OF_A_TARGET
    return EVERYWHERE | of_target | {*entry.labels}


def _by_name() -> Mapping[str, MetricSpec]:
    """Entries by the names that their series have: a summary's are two."""
    known: dict[str, MetricSpec] = {}
    for entry in CATALOGUE:
        ends = ("_count", "_sum") if entry.kind == "summary" else ("",)
        known.update({entry.name + end: entry for end in ends})
    return known


BY_NAME = _by_name()


def _judge(selector: Selector, entry: MetricSpec) -> Iterator[ExpressionError]:
    name = selector.name
    for label in selector.labels:
        if label not in known_labels(entry):
            yield ExpressionError("label", name, f"{name} has no label {label}")
    nearest = selector.inside[0] if selector.inside else ""
    if entry.kind == "gauge" and nearest in OF_COUNTERS:
        yield ExpressionError(
            "rate_of_gauge", name, f"{name} is a gauge: {nearest}() is for counters"
        )
    if entry.kind != "gauge" and not _is_counted(selector):
        words = f"{name} is a counter: take its rate() or increase(), it begins again at times"
        yield ExpressionError("bare_counter", name, words)


def _is_counted(selector: Selector) -> bool:
    around = {*selector.inside}
    return bool(around & (COUNTING | WHETHER)) and not around & OF_GAUGES


def _judge_list(labels: LabelList, new: Collection[str]) -> Iterator[ExpressionError]:
    """A label that none of these series has does nothing, which is never what was meant."""
    entries = [BY_NAME.get(selector.name) for selector in labels.about]
    if not entries or None in entries:
        return
    known = {label for entry in entries if entry is not None for label in known_labels(entry)}
    for label in labels.labels:
        if label not in known and label not in new and labels.word != "without":
            name = labels.about[0].name
            words = f"{labels.word} ({label}): none of these series has such a label"
            yield ExpressionError("label", name, words)
