"""Tells the stories to the engine, step by step as a sidecar would hear them."""

from __future__ import annotations

import dataclasses

from tests.unit.components.xid.stories import (
    PCI,
    STORIES,
    Attempt,
    Boot,
    Expect,
    L,
    N,
    R,
    Step,
    Story,
    Teardown,
    X,
)

from holdfast_sidecar.components.xid.checks import XidVerdict
from holdfast_sidecar.components.xid.engine import judge
from holdfast_sidecar.components.xid.events import XidEvent, parse_line
from holdfast_sidecar.components.xid.history import History, forget_old, take_in, take_reading
from holdfast_sidecar.components.xid.rules import GpuState, XidContext
from holdfast_sidecar.records.findings import Remedy

START_S = 1_700_000_000.0


@dataclasses.dataclass
class Telling:
    """One story as far as it was told."""

    scene: XidContext
    history: History = dataclasses.field(default_factory=History)
    verdicts: tuple[XidVerdict, ...] = ()

    def tell(self, step: Step) -> None:
        now_s = START_S + step.at_s
        scene = self.scene
        if isinstance(step, Boot):
            scene = dataclasses.replace(scene, boot=f"boot at {step.at_s}", gpus={})
        elif isinstance(step, Teardown):
            scene = dataclasses.replace(scene, teardowns=(*scene.teardowns, now_s))
        elif isinstance(step, Attempt):
            scene = dataclasses.replace(scene, attempt_since_s=now_s)
        elif isinstance(step, R):
            state = GpuState(step.model, step.mig, step.action, step.remap_failed)
            scene = dataclasses.replace(scene, gpus={**scene.gpus, PCI[step.gpu]: state})
        else:
            self.history, _ = take_in(self.history, event_of(step, now_s), scene.boot)
        self.scene = scene
        self.look(now_s)

    def look(self, now_s: float) -> None:
        """One poll of the GPUs, one judgement."""
        gpus = {p: dataclasses.replace(g, read_s=now_s) for p, g in self.scene.gpus.items()}
        self.scene = dataclasses.replace(self.scene, gpus=gpus, now_s=now_s)
        actions = {pci: gpu.action for pci, gpu in gpus.items() if gpu.action is not None}
        history = take_reading(self.history, actions, now_s, self.scene.boot)
        judgement = judge(forget_old(history, now_s), self.scene)
        self.verdicts, self.history = judgement.verdicts, judgement.history


def event_of(step: X | N | L, now_s: float) -> XidEvent:
    if isinstance(step, N):
        return XidEvent(now_s, "nvml", step.number, PCI[step.gpu], "")
    text = step.text if isinstance(step, L) else line_of(step)
    event = parse_line(text.replace("\\x0a", "\n"), now_s)
    assert event is not None, text
    return event


def line_of(step: X) -> str:
    rest = f", {step.rest}" if step.rest else ""
    return f"NVRM: Xid (PCI:{PCI[step.gpu][:-2]}): {step.number}{rest}"


def told(story: Story) -> Telling:
    telling = Telling(XidContext(START_S, "first boot", driver_branch=story.branch))
    for step in sorted(story.steps, key=lambda step: step.at_s):
        telling.tell(step)
    last_s = max(step.at_s for step in story.steps)
    telling.look(START_S + (last_s + 2.0 if story.at_s is None else story.at_s))
    return telling


def wrong_in(story: Story) -> list[str]:
    """What came out otherwise than the story says; empty where it is right."""
    telling = told(story)
    wrong = []
    for gpu, expect in story.expect.items():
        got = _outcome(PCI[gpu], telling.verdicts, expect)
        if got != expect:
            wrong.append(f"GPU {gpu}: expected {expect}, got {got}")
    for (gpu, name), times in story.times.items():
        counted = sum(one.name == name for one in telling.history.of(PCI[gpu]))
        if counted != times:
            wrong.append(f"GPU {gpu}: {name} counted {counted} times, not {times}")
    return wrong


def run_all() -> tuple[int, int, list[str]]:
    """How many stories came out right, of how many, and what is wrong with the others."""
    wrong = {story.name: wrong_in(story) for story in STORIES}
    failed = [f"{name}: {text}" for name, texts in wrong.items() for text in texts]
    return sum(not texts for texts in wrong.values()), len(wrong), failed


def _outcome(pci: str, verdicts: tuple[XidVerdict, ...], expect: Expect) -> Expect:
    mine = [verdict for verdict in verdicts if pci in verdict.suspects]
    worst = max(
        mine, key=lambda verdict: (verdict.remedy.severity, verdict.blame != "gpu"), default=None
    )
    return Expect(
        remedy=Remedy.NONE.value if worst is None else worst.remedy.value,
        blame="nobody" if worst is None else worst.blame.value,
        suppressed=expect.suppressed if _has(mine, expect.suppressed) else (),
        check=any(verdict.check for verdict in mine),
        urgent=None if expect.urgent is None else any(verdict.is_urgent for verdict in mine),
        told=None if expect.told is None else bool(mine),
    )


def _has(verdicts: list[XidVerdict], names: tuple[str, ...]) -> bool:
    suppressed = {verdict.name for verdict in verdicts if verdict.is_suppressed}
    return suppressed >= set(names)
