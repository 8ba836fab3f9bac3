"""The list of targets on disk, so that a sidecar that is started again goes on from it: one that
was lost an hour ago stays lost, and while Redis is away the list is not empty."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path

from holdfast.own_directory import make_closed
from holdfast_sidecar.serving.targets import SILENT_S, Target

logger = logging.getLogger(__name__)


KEEP_EVERY_S = 600.0
"""How often it is written though nothing is new: by that it is known how old it is."""


class TargetFile:
    """Written when somebody comes, goes, or has moved: not at every beat."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: object = None
        self._written_at = float("-inf")
        self._is_broken = False

    def read(self, now_unix_s: float) -> dict[str, Target]:
        """What a former sidecar of this node left; nothing where it left none."""
        try:
            return parse_targets(self._path.read_text(), now_unix_s)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def keep(self, targets: Mapping[str, Target], now_unix_s: float) -> None:
        """Write it down if it is news. A disk that is full only costs the memory of it."""
        news = {n: (t.address, t.silent_s >= SILENT_S) for n, t in targets.items()}
        if news == self._written and now_unix_s - self._written_at < KEEP_EVERY_S:
            return
        self._written, self._written_at = news, now_unix_s
        temporary = self._path.with_suffix(".new")
        try:
            make_closed(self._path.parent)
            temporary.write_text(spell_targets(targets, now_unix_s))
            temporary.replace(self._path)
        except OSError as error:
            if not self._is_broken:
                logger.warning("can't keep the list of targets: %s", error)
            self._is_broken = True


def spell_targets(targets: Mapping[str, Target], now_unix_s: float) -> str:
    """With the time since when each is silent."""
    known = {
        node: {
            "address": target.address,
            "beat": target.beat,
            "heard_unix_s": round(now_unix_s - target.silent_s, 3),
        }
        for node, target in targets.items()
    }
    return json.dumps(known, indent=1)


def parse_targets(text: str, now_unix_s: float) -> dict[str, Target]:
    """What was written. Who was heard then counts as silent since then until it is heard again:
    what lies here from another time of the job's life is not listed."""
    return {
        node: Target(
            str(one["address"]), str(one["beat"]), max(0.0, now_unix_s - one["heard_unix_s"])
        )
        for node, one in json.loads(text).items()
    }
