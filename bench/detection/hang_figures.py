"""The figures of hangs: told soon, ended where it is proven, and the right one blamed. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from bench.benchmark import Sample
from bench.detection.hang_names import HANGS
from bench.figures import Figure, at_least, at_most, exactly, middle
from bench.launch.names import HOLDFAST, NVRX, TORCHRUN

STEPS = 3
BEYOND_S = 1.0
ACTED_WITHIN_S = 2.0


def hang_figures(samples: Sequence[Sample]) -> list[Figure]:
    """What twelve kinds come to."""
    own = [s for s in samples if s["row"] == HANGS and s.get("contestant") == HOLDFAST]
    provable = [s for s in own if s["is_provable"]]
    wrong = Counter(s["kind"] for s in own if not s["is_right"])
    killed = [s for s in own if not s["is_provable"] and s["acted_s"] is not None]
    return [
        at_least("hangs: told within 3 steps + 1 s", "share", _share(own, _is_soon), 0.95),
        at_least(
            "hangs that can be proven: acted on 2 s later",
            "share",
            _share(provable, _is_acted),
            0.95,
        ),
        at_most("hangs: culprit wrong", "times", _known(own, sum(wrong.values())), 2),
        exactly("hangs: kinds of which it was wrong twice", "kinds", _known(own, _twice(wrong)), 0),
        exactly("hangs: ended on silence alone", "times", _known(own, len(killed)), 0),
        *(_of_kind(own, kind) for kind in dict.fromkeys(s["kind"] for s in own)),
        middle("provable hangs: acted on", "s", _seconds(provable, "acted_s")),
        *(_of_peer(samples, peer) for peer in (TORCHRUN, NVRX)),
    ]


def allowed_s(sample: Sample) -> float:
    """By when a hang of this job has to be told."""
    return STEPS * float(sample["step_s"]) + BEYOND_S


def _is_soon(sample: Sample) -> bool:
    told_s = sample["declared_s"]
    return told_s is not None and bool(told_s <= allowed_s(sample))


def _is_acted(sample: Sample) -> bool:
    acted_s = sample["acted_s"]
    return acted_s is not None and bool(acted_s <= allowed_s(sample) + ACTED_WITHIN_S)


def _share(samples: Sequence[Sample], is_so: Callable[[Sample], bool]) -> float | None:
    return sum(map(is_so, samples)) / len(samples) if samples else None


def _known(samples: Sequence[Sample], count: int) -> int | None:
    return count if samples else None


def _twice(wrong: Counter[str]) -> int:
    return sum(times > 1 for times in wrong.values())


def _of_kind(samples: Sequence[Sample], kind: str) -> Figure:
    of_kind = [s for s in samples if s["kind"] == kind]
    return middle(f"hangs: told, {kind}", "s", _seconds(of_kind, "declared_s"))


def _of_peer(samples: Sequence[Sample], peer: str) -> Figure:
    own = [s for s in samples if s["row"] == HANGS and s.get("contestant") == peer]
    return middle(f"hangs: first line of {peer}", "s", _seconds(own, "declared_s"))


def _seconds(samples: Sequence[Sample], name: str) -> list[float]:
    return [s[name] for s in samples if s.get(name) is not None]
