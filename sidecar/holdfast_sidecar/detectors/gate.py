"""Whether this node is fit for an attempt, by its newest readings: a tuple of checks.

A check that can't be made is told of and passes: a node is kept outside for what is seen, never for
what is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast_sidecar.detectors import gpu_checks, node_checks
from holdfast_sidecar.detectors.gate_subject import (
    GPU_PROBE,
    BlindError,
    Found,
    Subject,
    why_silent,
)
from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.reports import GateVerdict

GARBAGE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a check raises over a reading that makes no sense: it is blind then, the others go on."""


@dataclass(frozen=True)
class Trouble:
    """Why a node is unfit."""

    check: str
    what: str
    gpu: str = ""
    """UUID, where it is about one."""
    works: bool = False
    """An attempt would run all the same, if not as it should."""

    @property
    def words(self) -> str:
        """For people."""
        return f"{self.check}: {self.what}"


@dataclass(frozen=True)
class Fitness:
    """What all checks came to: passed, failed (with troubles), or blind (with a reason)."""

    troubles: tuple[Trouble, ...] = ()
    blind: Mapping[str, str] = field(default_factory=dict)
    gpus: int | None = 0
    """That are well; None: the driver does not say."""
    gpus_all: int = 0
    is_known: bool = True
    """False: nothing was read yet."""

    def verdict(self, now_unix_s: float, after: str = "") -> GateVerdict:
        """As it travels."""
        state = "unfit" if self.troubles else "fit" if self.is_known else "unknown"
        return GateVerdict(
            state,
            [trouble.words for trouble in self.troubles],
            now_unix_s,
            [f"{check}: {why}" for check, why in self.blind.items()],
            after,
            self.gpus,
            self.gpus_all,
            bool(self.troubles) and all(trouble.works for trouble in self.troubles),
        )

    def passes(self, check: str) -> bool | None:
        """Whether this check was passed; None where it could not be made."""
        if not self.is_known or check in self.blind:
            return None
        return all(trouble.check != check for trouble in self.troubles)


CHECKS: Mapping[str, Callable[[Subject], Found]] = {
    "gpus": gpu_checks.check_gpus,
    "recovery": gpu_checks.check_recovery,
    "gpu memory": gpu_checks.check_memory,
    "pcie": gpu_checks.check_pcie,
    "nvlink": gpu_checks.check_nvlink,
    "gpu faults": gpu_checks.check_faults,
    "links": node_checks.check_links,
    "room": node_checks.check_room,
    "clock": node_checks.check_clock,
    "test": node_checks.check_test,
}
"""In the order in which a person should hear of them."""


def judge_fitness(subject: Subject) -> Fitness:
    """Make every check."""
    troubles: list[Trouble] = []
    blind: dict[str, str] = {}
    for name, check in CHECKS.items():
        try:
            troubles += [Trouble(name, *seen) for seen in check(subject)]
        except BlindError as error:
            blind[name] = str(error)
        except GARBAGE as error:
            blind[name] = f"{type(error).__name__}: {error}"
    is_known = subject.machine.gpu is not None or why_silent(subject, GPU_PROBE) != ""
    expected = gpu_checks.count_expected(subject)
    return Fitness(tuple(troubles), blind, _well(subject, troubles), expected, is_known)


def _well(subject: Subject, troubles: Sequence[Trouble]) -> int | None:
    if subject.gpus is None:
        return None
    unwell = {trouble.gpu for trouble in troubles}
    return sum(not gpu.lost and gpu.uuid not in unwell for gpu in subject.gpus.gpus)


def find_gate_troubles(fitness: Fitness, acts: bool, moment: Moment) -> Iterator[Finding]:
    """That this node is unfit, and what its gate can't see."""
    if fitness.troubles:
        told = [trouble.words for trouble in fitness.troubles]
        if not acts:
            told.append(
                "it is taken in all the same (gate.mode); `holdfast node drain` prevents it"
            )
        yield Finding(Kind.NODE_UNFIT, moment.node, moment.now_unix_s, 0.9, evidence=told)
    for why in dict.fromkeys(fitness.blind.values()):
        checks = [check for check, reason in fitness.blind.items() if reason == why]
        told = [f"{', '.join(checks)} can't be checked, the node counts as fit: {why}"]
        yield Finding(
            Kind.GATE_BLIND, moment.node, moment.now_unix_s, 0.9, evidence=told, what=checks[0]
        )
