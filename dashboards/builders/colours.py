"""Colours that eight in a hundred men can tell apart too (Okabe and Ito's palette, and tints)."""

from __future__ import annotations

GREEN = "#009E73"
SKY = "#56B4E9"
BLUE = "#0072B2"
YELLOW = "#F0E442"
ORANGE = "#E69F00"
VERMILION = "#D55E00"
PURPLE = "#CC79A7"
GREY = "#8C8C8C"

GOOD = GREEN
WATCH = ORANGE
BAD = VERMILION
PLAIN = BLUE
"""Neither good nor bad."""

CATEGORIES = {
    "productive": GREEN,
    "evaluating": "#66C7AB",
    "data_wait": SKY,
    "saving": BLUE,
    "restore": "#6FA8D6",
    "straggler": YELLOW,
    "warmup": "#E3B7D0",
    "compiling": PURPLE,
    "setup": "#B58BA5",
    "init": "#9A6F8B",
    "restart": ORANGE,
    "draining": "#F2C867",
    "hang_undetected": VERMILION,
    "paused": "#B9B9B9",
    "unobserved": GREY,
    "queued": "#5F5F5F",
    "other": "#3F3F3F",
}
"""What time went to: green is training, blues wait for data and storage, purples begin, oranges and
reds were lost to faults, greys are nobody's fault or nobody's knowledge."""

PHASES = {
    0: ("starting", "#9A6F8B"),
    1: ("restoring", "#6FA8D6"),
    2: ("compiling", PURPLE),
    3: ("data", SKY),
    4: ("forward", "#66C7AB"),
    5: ("backward", GREEN),
    6: ("communicating", YELLOW),
    7: ("optimizer", "#00634A"),
    8: ("saving", BLUE),
    9: ("evaluating", "#B5DFD2"),
    10: ("idle", GREY),
    11: ("finished", "#5F5F5F"),
    12: ("transferring", "#3F88B5"),
}
"""The rank page's phase numbers (docs/metrics.md)."""
