"""How slow a cell of the heat map is: its level, the sign and the colour of each. Pure.

Signs rise and colours lighten with the level, so either alone tells it, and so does the colour to
those who see no red, no green or no blue.
"""

from __future__ import annotations

from bisect import bisect_right

from holdfast_sidecar.top.drawing.line import HEAT, Line, Look, Span
from holdfast_sidecar.top.drawing.signs import Signs

STEPS = (1.05, 1.1, 1.2, 1.35, 1.5, 2.0, 3.0)
"""Own time against the median of the peers, from which on the next level begins. The first is where
a rank begins to be called slow (`straggler.least_slowdown`); a third more is what a throttled GPU
costs; from three times on, how much does not matter."""

COLOURS = (
    "#15598c",
    "#5f6c86",
    "#787f83",
    "#939278",
    "#b0a66c",
    "#cdbb5b",
    "#ebd24a",
    "#fff3b0",
)
"""One for each level, of cividis' kind (Nuñez et al. 2018): from blue to yellow through grey, with
a lightness that rises by the same amount at each. The darkest of all is left out, which is not seen
on a dark screen."""

LETTERS = {
    "starting": "S",
    "restoring": "R",
    "compiling": "C",
    "data": "D",
    "forward": "F",
    "backward": "B",
    "communicating": "W",
    "optimizer": "O",
    "saving": "V",
    "evaluating": "E",
    "idle": "I",
    "finished": "X",
    "transferring": "T",
    "gone": "G",
    "lost": "L",
}
"""What stands where no step ended: by it is seen who waits for others, and who is waited for."""

UNKNOWN_PHASE = "?"


def level(ratio: float) -> int:
    """0: no slower than its peers."""
    return bisect_right(STEPS, ratio)


def cell(ratio: float | None, phase: str, signs: Signs) -> Span:
    """One column of one row."""
    if ratio is not None:
        step = level(ratio)
        return Span(signs.heat[step], HEAT[step])
    if not phase:
        return Span(" ")
    return Span(LETTERS.get(phase, UNKNOWN_PHASE), Look.DIM)


def legend(signs: Signs) -> list[Line]:
    """What each sign of the ramp means."""
    words = [f"under {STEPS[0]:g}x", *(f"{step:g}x" for step in STEPS)]
    return [
        (Span(sign, look), Span(f" {word}"))
        for sign, look, word in zip(signs.heat, HEAT, words, strict=True)
    ]
