"""State that this node's ranks found, by trying it, that no resume could give back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast_sidecar.observation import RankLook
from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.findings import Finding, Kind


def find_unrestorable(looks: Iterable[RankLook], moment: Moment) -> Iterator[Finding]:
    """One for each thing, with the ranks that say so; `what` is the first word: the user's name."""
    told: dict[str, list[int]] = {}
    for look in looks:
        for reason in look.unrestorable:
            told.setdefault(reason, []).append(look.rank)
    for reason, ranks in told.items():
        yield Finding(
            Kind.NOT_RESTORABLE,
            moment.node,
            moment.now_unix_s,
            1.0,
            sorted(ranks),
            [reason],
            what=reason.split(maxsplit=1)[0] if reason else "",
        )
