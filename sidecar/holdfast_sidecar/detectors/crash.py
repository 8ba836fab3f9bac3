"""A rank whose process is gone, or ends and is only being cleared away, without having finished."""

from __future__ import annotations

import signal
from collections.abc import Iterator

from holdfast.page import END_SIGNAL
from holdfast_sidecar.observation import RankHistory, Ranks
from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.formatting import how_it_ended

BY_ORDER = frozenset(
    {-signal.SIGTERM, -signal.SIGINT, -END_SIGNAL, 128 + signal.SIGTERM, 128 + signal.SIGINT}
)
"""How launchers, schedulers and people end ranks: whoever ordered it says what it means. Programs
that handle such a signal themselves leave by 128 and its number."""

INTERRUPTED = "KeyboardInterrupt"
"""The last words of one that was sent SIGINT, however it ended then."""

ORDER_HEARD_S = 5.0
"""...and this is how long the word of it may take: once a plan has ended the attempt nobody is
judged any more, but launchers may have obeyed it before this sidecar has read it, from a store that
was just away. Nothing waits for it: what such an end means its launcher reports at once."""

OOM_JUST_BEFORE_S = 2.0
"""The OOM killer counts before it kills; the count may have been read one look before the end."""

OOM_SHORTLY_BEFORE_S = 10.0
"""A rank whose worker was taken fails by itself when it next asks that worker for something."""


def find_crashes(ranks: Ranks, moment: Moment) -> Iterator[Finding]:
    """One finding per crashed rank of this node.

    Only ranks that were seen alive count: a page whose owner was gone at first sight may be left
    over from an earlier run, and a launcher reports the deaths of its own children anyway. Nor does
    one that ended with code 0: scripts do that by `os._exit`, past all that could say so.
    """
    for history in ranks.local.values():
        if history.gone_since_s is None or history.has_ended_well:
            continue
        is_young = moment.now_s - history.gone_since_s < ORDER_HEARD_S
        if is_young and _was_ordered(history):
            continue
        if history.was_seen_alive:
            yield _crash(history, moment, history.gone_since_s)


def _crash(history: RankHistory, moment: Moment, gone_since_s: float) -> Finding:
    look = history.look
    end = describe_end(history, gone_since_s)
    evidence = [f"process {look.identity.pid} {end} in {look.phase.name.lower()}, step {look.step}"]
    if look.last_words is not None:
        evidence.append(
            f"last words: {look.last_words.get('type', '')}: {look.last_words.get('message', '')}"
        )
    return Finding(
        kind=Kind.CRASH,
        node=moment.node,
        since_unix_s=moment.unix_s(gone_since_s),
        confidence=1.0,
        ranks=[look.rank],
        evidence=evidence,
        acts=history.exit_code is not None and not _was_ordered(history),
    )


def _was_ordered(history: RankHistory) -> bool:
    words = history.look.last_words or {}
    return history.exit_code in BY_ORDER or words.get("type") == INTERRUPTED


def describe_end(history: RankHistory, gone_since_s: float) -> str:
    """What happened to the process, in words."""
    code = history.exit_code
    if code is None:
        return "is gone"
    if code == -signal.SIGKILL and history.look.is_oom_victim:
        return "was killed by the kernel's OOM killer, as its log says,"
    since_oom_s = _since_oom_s(history, gone_since_s)
    if code == -signal.SIGKILL and since_oom_s <= OOM_JUST_BEFORE_S:
        return "was killed by the kernel's OOM killer, by the count of its memory cgroup,"
    end = how_it_ended(code)
    if since_oom_s <= OOM_SHORTLY_BEFORE_S:
        end += f", {since_oom_s:.1f} s after the OOM killer struck in its memory cgroup,"
    return end


def _since_oom_s(history: RankHistory, gone_since_s: float) -> float:
    seen_s = history.oom_seen_s
    return float("inf") if seen_s is None else max(0.0, gone_since_s - seen_s)
