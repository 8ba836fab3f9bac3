"""Waits of rules, routes and scraping, all shorter by one factor. Pure: text in, text out.

What a wait is compared with (how soon Holdfast notices, how long a restart takes) stays as long as
it is. So this shows that an alert is paged, once and with its cause; how long that takes with the
shipped waits, or whether a spare is quicker than the page, only those show.
"""

from __future__ import annotations

import re

WAITS = (
    *("interval", "for", "keep_firing_for"),
    *("group_wait", "group_interval", "repeat_interval", "resolve_timeout"),
    *("scrape_interval", "scrape_timeout", "evaluation_interval", "refresh_interval"),
)

_WAIT = re.compile(rf"^(\s*(?:- )?(?:{'|'.join(WAITS)}): )((?:\d+(?:ms|s|m|h|d))+)$", re.MULTILINE)
_PART = re.compile(r"(\d+)(ms|s|m|h|d)")
_SILENCE = re.compile(r"(node:holdfast_silence:seconds\[\w+\]\) > )(\d+)")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def hastened(text: str, factor: float) -> str:
    """A file of rules, of routes or of Prometheus itself, with every wait divided by `factor`.

    Also for how long a node must not have been heard of, which stands in expressions. Windows over
    which series are looked at stay: they only bridge gaps.
    """
    shorter = _WAIT.sub(lambda found: found[1] + _divided(found[2], factor), text)
    return _SILENCE.sub(lambda found: f"{found[1]}{int(found[2]) / factor:g}", shorter)


def seconds(duration: str) -> float:
    """A duration as Prometheus writes it: `1m30s`."""
    return sum(int(count) * _UNIT_S[unit] for count, unit in _PART.findall(duration))


def _divided(duration: str, factor: float) -> str:
    """In milliseconds, for which nothing has to be rounded away; 0 stays 0."""
    return duration if factor == 1 else f"{round(1000 * seconds(duration) / factor)}ms"
