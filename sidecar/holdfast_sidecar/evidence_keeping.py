"""Keeps the evidence of the incident at hand, in a thread: the node's loop goes on looking while
ranks are asked, and a file system that hangs may be the very fault."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from holdfast import page
from holdfast_sidecar.actions.evidence import ANSWER_S, AskRing, Request, keep_evidence
from holdfast_sidecar.config.paths import TAKES_NOTHING, Places
from holdfast_sidecar.config.redaction import Redaction
from holdfast_sidecar.config.settings import EvidenceSettings
from holdfast_sidecar.evidence.kept import is_kept, read_places
from holdfast_sidecar.evidence.rank_facts import RankFactsMemory
from holdfast_sidecar.linux.threads import start_thread
from holdfast_sidecar.ranks.ending import ActionRunner
from holdfast_sidecar.ranks.flight_recorder import HANDLERS, ask
from holdfast_sidecar.ranks.page import RankPage
from holdfast_sidecar.records.plan import Plan

WAIT_S = 0.1
"""The loop waits so long for what mostly takes half of it; after that it looks at every tick."""

DYING_ANSWER_S = 0.05
"""Ranks of an attempt that was ended are being ended: who answers at all does so at once."""

PAUSES_S = (0.0, 1.0, 5.0, 30.0)
"""Between the tries to keep one incident's evidence, each of which asks all ranks for their stacks.
After the last one it is left."""

Keep = Callable[[Request, float], bool]

logger = logging.getLogger(__name__)


def ask_rings(held: RankPage, deadline_s: float) -> bytes:
    """All that a rank's flight recorders hold, by the name of the question. Raises OSError."""
    socket = held.path.with_suffix(page.SOCKET_SUFFIX)
    answers = {HANDLERS[0]: ask(socket, deadline_s, HANDLERS[0])}
    for handler in HANDLERS[1:]:
        with contextlib.suppress(OSError):  # not every torch knows it
            answers[handler] = ask(socket, deadline_s, handler)
    told = (f'"{handler}": '.encode() + answer for handler, answer in answers.items())
    return b"{" + b",\n".join(told) + b"}"


@dataclass(frozen=True)
class KeptEvidence:
    """What is on disk of an incident, for all to know."""

    incident: str = ""
    where_ranks_stood: Mapping[str, str] = field(default_factory=dict)


@dataclass
class EvidenceTries:
    """How the tries to keep one incident's evidence went, and whether it is worth another."""

    _incident: str = ""
    _since_s: float = math.inf
    _due_s: float = 0.0
    _count: int = 0
    _hopeless: str = ""
    """Incident whose evidence the disk does not take."""

    def may_begin(self, incident: str, now_s: float) -> bool:
        """Whether to try now; if so, that is counted."""
        if incident != self._incident:
            self._incident, self._since_s = incident, now_s
            self._due_s, self._count = now_s, 0
        if self._count > len(PAUSES_S) or now_s < self._due_s:
            return False
        self._due_s = now_s + (*PAUSES_S, math.inf)[self._count]
        self._count += 1
        return True

    def run(self, incident: str, keep: Callable[[], bool]) -> bool:
        """Keep it. Raises what that raises."""
        try:
            return keep()
        except OSError as error:
            if error.errno in TAKES_NOTHING:
                self._hopeless = incident
            raise

    def are_over(self, incident: str, patience_s: float, now_s: float) -> bool:
        """Whether nobody waits for this evidence any more, on disk or not."""
        if incident != self._incident:
            return False
        return self._hopeless == incident or now_s - self._since_s > patience_s


@dataclass
class EvidenceKeeping:
    """One incident's evidence at a time. `kept` is the newest that is on disk."""

    places: Places
    runner: ActionRunner
    ask_ring: AskRing | None = ask_rings
    settings: EvidenceSettings = field(default_factory=EvidenceSettings)
    secrets: frozenset[str] = frozenset()
    """What this process itself must not write down."""
    facts: RankFactsMemory = field(default_factory=RankFactsMemory)
    keep_now: Keep = keep_evidence
    kept: KeptEvidence = field(default_factory=KeptEvidence)
    tries: EvidenceTries = field(default_factory=EvidenceTries)
    _thread: threading.Thread | None = None

    @property
    def redaction(self) -> Redaction:
        """Everything that is known for a secret on this node."""
        return Redaction(self.secrets | self.facts.secrets())

    def clean(self, text: str) -> str:
        """The text without them, and without what looks like one."""
        return self.redaction.text(text)

    def keep(self, plan: Plan, held: Iterable[RankPage], now_s: float) -> None:
        """Begin with the plan's incident, or give it a little time; safe to repeat.

        One that hangs in a file system is left alone: nothing here can end it.
        """
        if self.kept.incident == plan.incident:
            return
        is_free = self._thread is None or not self._thread.is_alive()
        if is_free and self.tries.may_begin(plan.incident, now_s):
            request = self._request(plan, held)
            answer_s = ANSWER_S if plan.state == "evidence" else DYING_ANSWER_S
            self._thread = start_thread(self._run, "evidence", (request, answer_s))
        if self._thread is not None:
            self._thread.join(WAIT_S)

    def _run(self, request: Request, answer_s: float) -> None:
        keep = partial(self.tries.run, request.incident, partial(self.keep_now, request, answer_s))
        if self.runner.run("keep_evidence", keep):
            logger.info("kept evidence of incident %s in %s", request.incident, request.destination)
        if is_kept(request.destination):
            self.kept = KeptEvidence(request.incident, read_places(request.destination))

    def _request(self, plan: Plan, held: Iterable[RankPage]) -> Request:
        return Request(
            incident=plan.incident,
            pages=tuple(one for one in held if one.identity.attempt == plan.attempt),
            stacks=self.places.evidence(plan.attempt),
            destination=self.places.incident(plan.incident),
            culprits=frozenset(plan.culprit_ranks),
            facts=self.facts.of_attempt(plan.attempt),
            redaction=self.redaction,
            ask_ring=self.ask_ring,
            spies=self.settings.spies and plan.state == "evidence",
            native_s=self.settings.native_s,
        )
