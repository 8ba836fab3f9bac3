"""What all panels have in common: words, unit, queries, and that no data never looks like 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from builders.colours import GREY
from builders.leading import data_link, panel_link
from builders.names import DATA_SOURCE, Json
from builders.query import Query, targets

NO_DATA = "no data"


@dataclass(frozen=True)
class Words:
    """What a panel is called, what it says, what to do when it looks bad, where a click leads."""

    title: str
    says: str
    do: str
    to: str
    by: tuple[str, ...] = ()
    """Labels of a value that the next dashboard takes over, such as `run` or `node`."""

    @property
    def description(self) -> str:
        """What Grafana shows behind the panel's (i)."""
        return f"{self.says}\n\n**{self.lead}:** {self.do}"

    @property
    def lead(self) -> str:
        """What the advice is about."""
        return "When it is red"


@dataclass(frozen=True)
class Hint(Words):
    """Of a panel that has no red, as what is good differs from run to run."""

    @property
    def lead(self) -> str:
        """What the advice is about."""
        return "What to look for"


@dataclass(frozen=True)
class Scale:
    """How values are read: their unit, bounds, words for some of them, colours from some on."""

    unit: str
    least: float | None = None
    most: float | None = None
    decimals: int | None = None
    steps: tuple[tuple[float | None, str], ...] = ()
    """(from, colour), the lowest first and from None."""
    words: tuple[Json, ...] = ()
    """Value mappings."""
    colours: dict[str, str] = field(default_factory=dict)
    """Series' name -> colour."""


def panel(
    kind: str, words: Words, queries: Sequence[Query], scale: Scale, options: Json, custom: Json
) -> Json:
    """A panel of this kind, still without a place."""
    return {
        "datasource": DATA_SOURCE,
        "description": words.description,
        "fieldConfig": {
            "defaults": defaults(words, scale, custom),
            "overrides": [fixed(name, colour) for name, colour in scale.colours.items()],
        },
        "links": [panel_link(words.to)],
        "options": options,
        "targets": targets(list(queries)),
        "title": words.title,
        "transformations": [],
        "type": kind,
    }


def defaults(words: Words, scale: Scale, custom: Json) -> Json:
    """How every value of the panel is shown."""
    bounds = {"min": scale.least, "max": scale.most, "decimals": scale.decimals}
    mode = "thresholds" if scale.steps else "palette-classic"
    return {
        "color": {"mode": mode},
        "custom": custom,
        "links": [data_link(words.to, words.by)],
        "mappings": [*scale.words, unknown()],
        "noValue": NO_DATA,
        "thresholds": thresholds(scale.steps or ((None, GREY),)),
        "unit": scale.unit,
        **{name: value for name, value in bounds.items() if value is not None},
    }


def thresholds(steps: Sequence[tuple[float | None, str]]) -> Json:
    """From which value on which colour."""
    return {
        "mode": "absolute",
        "steps": [{"color": colour, "value": start} for start, colour in steps],
    }


def spelled(meanings: Mapping[int, tuple[str, str]]) -> Json:
    """Words and colours for single values."""
    return {
        "type": "value",
        "options": {
            f"{value}": {"text": text, "color": colour, "index": index}
            for index, (value, (text, colour)) in enumerate(meanings.items())
        },
    }


def unknown() -> Json:
    """What is not known says so."""
    return {
        "type": "special",
        "options": {"match": "null+nan", "result": {"text": NO_DATA, "color": GREY, "index": 99}},
    }


def fixed(name: str, colour: str) -> Json:
    """One series in a colour of its own."""
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}],
    }


def tooltip(mode: str = "multi") -> Json:
    """What is under the pointer; of several lines the largest first."""
    return {"mode": mode, "sort": "desc"}


def legend(place: str = "bottom", calculations: Sequence[str] = ()) -> Json:
    """The names of the lines."""
    return {
        "calcs": list(calculations),
        "displayMode": "table" if calculations else "list",
        "placement": place,
        "showLegend": True,
    }
