"""Keeps what would die with ranks that have no hooks: how they were started, the kernel's views of
them, and stacks where py-spy is installed and may look.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.own_directory import make_closed
from holdfast_sidecar.config.redaction import Redaction
from holdfast_sidecar.evidence.kept import Kept, write_file, write_kept
from holdfast_sidecar.evidence.rank_facts import RankFacts, read_rank_facts
from holdfast_sidecar.linux.threads import start_thread
from holdfast_sidecar.ranks.stack_dumps import main_thread, place
from holdfast_sidecar.ranks.stacks import Suspect, find_spy, read_kernel_views, spy
from holdfast_sidecar.ranks.unhooked import OutsideLook

PROC = Path("/proc")

FACTS_S = 1.0
"""Command and variables lie in the process's own memory, and whoever asks for them waits as long as
a page of it does: where that may be the very fault, the evidence is kept without them."""


def keep_outside_evidence(
    incident: str,
    destination: Path,
    looks: Sequence[OutsideLook],
    proc: Path = PROC,
    facts_s: float = FACTS_S,
) -> Mapping[int, str]:
    """Write it down; answers where each rank's main thread stood, as far as that was seen."""
    started = time.monotonic()
    make_closed(destination)
    alive = [look for look in looks if not look.is_gone]
    facts = _read_facts(alive, proc, facts_s)
    redaction = Redaction(frozenset().union(*(one.secrets for one in facts.values())))
    for look in alive:
        rank = look.who.rank
        known = facts.get(rank, RankFacts())
        described = {
            "pid": look.who.pid,
            "command": redaction.command(known.command),
            "environment": redaction.environment(known.told_variables),
            "process": redaction.plain(read_kernel_views(proc, look.who.pid)),
        }
        _write(destination / f"rank-{rank}.json", json.dumps(described, indent=1))
    stacks = _read_stacks(alive, destination)
    for rank, text in stacks.items():
        _write(destination / f"rank-{rank}-stacks.txt", redaction.text(text))
    places = {rank: place(main_thread(text)) for rank, text in stacks.items()}
    write_kept(
        destination,
        Kept(
            incident=incident,
            ranks=[look.who.rank for look in alive],
            stacks_answered=[],
            spied=sorted(stacks),
            seconds=round(time.monotonic() - started, 3),
            places={str(rank): where for rank, where in places.items()},
            at_unix_s=time.time(),
        ),
    )
    return places


def _read_facts(alive: Sequence[OutsideLook], proc: Path, limit_s: float) -> dict[int, RankFacts]:
    """rank -> what was read of it within this time."""
    facts: dict[int, RankFacts] = {}

    def read() -> None:
        for look in alive:
            facts[look.who.rank] = read_rank_facts(proc / str(look.who.pid))

    reader = start_thread(read, "rank-facts")
    if reader is not None:
        reader.join(limit_s)
    return dict(facts)


def _read_stacks(alive: Sequence[OutsideLook], scratch: Path) -> dict[int, str]:
    spy_path = find_spy()
    suspects = [
        Suspect(look.who.rank, look.who.pid, is_stopped=look.state == "T", has_answered=False)
        for look in alive
    ]
    return spy(spy_path, suspects, scratch) if spy_path else {}


def _write(path: Path, text: str) -> None:
    write_file(path, text.encode())
