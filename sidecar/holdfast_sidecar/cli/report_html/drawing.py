"""Small pieces of SVG and HTML, escaped; what they are put together to, the other files say."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

WIDTH = 960.0
"""Units of every picture's width; it is as wide on the page as there is room."""

LEAST_WIDTH = 1.0
"""What lasted a moment of a long run is seen all the same."""


def text_of(words: str) -> str:
    """Words as they may stand in a page."""
    return html.escape(words, quote=True)


def words_of(sentence: str) -> str:
    """A sentence with `commands` in it."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", text_of(sentence))


def picture(height: float, title: str, parts: Iterable[str]) -> str:
    """An SVG picture, with words for who can't see it."""
    return (
        f'<svg viewBox="0 0 {WIDTH:g} {height:g}" role="img" aria-label="{text_of(title)}">'
        f"{''.join(parts)}</svg>"
    )


def box(x: float, y: float, width: float, height: float, colour: str, title: str = "") -> str:
    """A filled rectangle; `title` is shown where the pointer rests on it."""
    told = f"<title>{text_of(title)}</title>" if title else ""
    shown = max(width, LEAST_WIDTH)
    return (
        f'<rect x="{x:.2f}" y="{y:g}" width="{shown:.2f}" height="{height:g}" fill="{colour}">'
        f"{told}</rect>"
    )


def line(x1: float, y1: float, x2: float, y2: float) -> str:
    """A thin line, as axes have it."""
    return f'<line class="axis" x1="{x1:.2f}" y1="{y1:g}" x2="{x2:.2f}" y2="{y2:g}"/>'


def label(x: float, y: float, words: str, anchor: str = "start", css: str = "") -> str:
    """Words in a picture."""
    styled = f' class="{css}"' if css else ""
    return f'<text x="{x:.2f}" y="{y:g}" text-anchor="{anchor}"{styled}>{text_of(words)}</text>'


def key(colour: str) -> str:
    """The small square that says which colour is meant."""
    return f'<span class="key" style="background:{colour}"></span>'


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int]) -> str:
    """A table; cells are HTML already. numbers: columns that are set to the right."""

    def cells(row: Sequence[str], tag: str) -> str:
        to_right = [' class="n"' if index in numbers else "" for index in range(len(row))]
        return "".join(
            f"<{tag}{css}>{cell}</{tag}>" for css, cell in zip(to_right, row, strict=True)
        )

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    head = cells([text_of(one) for one in headings], "th")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
