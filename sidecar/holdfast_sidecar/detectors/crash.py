"""A rank whose process is gone without having said that it finished."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.findings import Finding, Kind
from holdfast_sidecar.observation import Moment, RankHistory, Ranks


def find_crashes(ranks: Ranks, moment: Moment) -> Iterator[Finding]:
    """One finding per crashed rank of this node.

    Only ranks that were seen alive count: a page whose owner was gone at first sight may be left
    over from an earlier run, and a launcher reports the deaths of its own children anyway.
    """
    for history in ranks.local.values():
        if history.gone_since_s is None or history.look.has_finished:
            continue
        if history.was_seen_alive:
            yield _crash(history, moment, history.gone_since_s)


def _crash(history: RankHistory, moment: Moment, gone_since_s: float) -> Finding:
    look = history.look
    evidence = [
        f"process {look.identity.pid} is gone in {look.phase.name.lower()}, step {look.step}"
    ]
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
        acts=True,
    )
