"""What keeps after the end of an attempt, written beside what was kept before it: the decision and
its reasons, the machine, the kernel's lines, the ends of logs, versions, and who failed first.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
import socket
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from holdfast.contract.own_directory import make_closed
from holdfast_sidecar.components.machine import MachineReading
from holdfast_sidecar.config.paths import Paths
from holdfast_sidecar.config.redaction import Redaction
from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.incidents.first_error import (
    OWN,
    LogSource,
    Sign,
    confidence,
    find_errors,
    order,
    read_tail,
    sign_of_exit,
    sign_of_leaver,
    sign_of_line,
    sign_of_report,
    sign_of_words,
)
from holdfast_sidecar.incidents.rank_facts import Output, RankFacts, write_file
from holdfast_sidecar.policy.blame import find_culprit
from holdfast_sidecar.policy.budget import ENDED_BY_US
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.records.reports import AgentReport, NodeReport

# A bundle: everything that one node kept of an incident in one file, with an index of it.

INDEX = "bundle.json"
SUFFIX = ".tar.gz"
TEMPORARY = ".new"


def archive_of(directory: Path) -> Path:
    """Where the evidence in this directory is packed."""
    return directory.with_name(directory.name + SUFFIX)


def pack(directory: Path, facts: Mapping[str, Any]) -> Path:
    """Write the index, last of all files, then the archive beside the directory. Raises OSError."""
    files = _files(directory)
    index = {
        **facts,
        "files": {
            path.name: {
                "size": path.stat().st_size,
                "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            }
            for path in files
        },
    }
    write_file(directory / INDEX, json.dumps(index, indent=1).encode())
    archive = archive_of(directory)
    temporary = archive.with_name(archive.name + TEMPORARY)
    with tarfile.open(temporary, "w:gz", compresslevel=6) as tar:
        for path in (directory / INDEX, *files):
            tar.add(path, f"{directory.name}/{path.name}", recursive=False, filter=_anonymous)
    temporary.chmod(0o600)
    temporary.replace(archive)
    return archive


def size_bytes(directory: Path) -> int:
    """What lies in the directory."""
    return sum(path.stat().st_size for path in _files(directory))


def _files(directory: Path) -> list[Path]:
    return [
        path
        for path in sorted(directory.iterdir())
        if path.is_file() and path.name != INDEX and path.suffix != TEMPORARY
    ]


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Whoever gets the bundle need not learn who has which number on this machine."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


DONE = "aftermath.json"
"""Written last of these files: what it took, and what was left out."""

FIRST_ERROR = "first-error.json"

BEFORE_S = 600.0
"""Of the kernel's lines those since so long before: a link that flapped, a disk that filled."""

ReadKernelLines = Callable[[float], list[str]]
"""Lines since that second of the kernel's clock. Raises OSError."""


@dataclass(frozen=True)
class IncidentContext:
    """What is known of an incident when its attempt has ended; plain data, taken in one tick."""

    plan: Plan
    node: str
    places: Paths
    settings: Settings
    facts: Mapping[int, RankFacts]
    """rank of this node -> with what it was started."""
    local_ranks: Mapping[int, int]
    """local rank -> rank."""
    last_words: Mapping[int, str]
    """rank of this node -> type and message of the exception that it told of."""
    machine: MachineReading
    records: Mapping[str, Mapping[str, str]]
    """Section -> field -> record, as everybody read them: reports, plan, incidents."""
    redaction: Redaction = field(default_factory=Redaction)

    @property
    def directory(self) -> Path:
        """Where it is kept."""
        return self.places.incident(self.plan.incident)


@dataclass
class _Room:
    """Writes files until the bundle's share is used up: of text the end, and plain data whole or
    not at all. What is cut or left out is named."""

    directory: Path
    left_bytes: int
    cut: list[str] = field(default_factory=list)

    def write(self, name: str, text: str) -> None:
        content = text.encode(errors="replace")
        if len(content) > self.left_bytes:
            self.cut.append(name)
            keeps = self.left_bytes if name.endswith(".log") else 0
            content = content[-keeps:] if keeps > 0 else b""
        if content:
            write_file(self.directory / name, content)
            self.left_bytes -= len(content)


def keep_aftermath(
    scene: IncidentContext, read_kernel_lines: ReadKernelLines, now_unix_s: float, now_s: float
) -> bool:
    """Write all of it; False when it was there already. Raises OSError. `now_s`: CLOCK_MONOTONIC,
    which the kernel's log counts by, too."""
    directory = scene.directory
    if (directory / DONE).exists():
        return False
    make_closed(directory)
    room = _Room(directory, scene.settings.evidence.most_bytes - size_bytes(directory))
    clean = scene.redaction.plain
    room.write("decision.json", _json(clean(_decision(scene))))
    room.write("machine.json", _json(clean(_machine(scene.machine))))
    room.write("software.json", _json(clean(_software())))
    room.write("settings.json", _json(clean(dataclasses.asdict(scene.settings))))
    signs = [*_signs_of_exits(scene), *_signs_of_words(scene)]
    signs += _keep_logs(scene, room, now_unix_s)
    if scene.plan.cause in ENDED_BY_US:
        # Its culprit was killed by us, and its peers raised for that.
        signs = [sign for sign in signs if sign.source != "exit" and sign.weight >= OWN]
    # Whatever the logs took: this is what they were read for, and a few lines per rank.
    write_file(directory / FIRST_ERROR, _json(clean(_first_error(signs))).encode())
    room.write("kernel.log", scene.redaction.text(_kernel_log(read_kernel_lines, now_s)))
    left_out = {"cut": room.cut, "at_unix_s": now_unix_s}
    write_file(directory / DONE, _json(left_out).encode())
    return True


def _decision(scene: IncidentContext) -> dict[str, Any]:
    """Every node's report and the leader's word, as they were."""
    return {
        "plan": dataclasses.asdict(scene.plan),
        **{
            section: {name: _loaded(text) for name, text in fields.items()}
            for section, fields in scene.records.items()
        },
    }


def _machine(reading: MachineReading) -> dict[str, Any]:
    if reading.host is not None:  # an hour of tallies: 40 kB that say what metrics have
        reading = dataclasses.replace(reading, host=dataclasses.replace(reading.host, earlier=()))
    return {
        "host_name": socket.gethostname(),
        "kernel": " ".join(platform.uname()[2:5]),
        "readings": dataclasses.asdict(reading),
    }


def _software() -> dict[str, Any]:
    names = ((one.metadata["Name"] or "?", one.version) for one in metadata.distributions())
    return {"python": sys.version, "packages": dict(sorted(names))}


def _keep_logs(scene: IncidentContext, room: _Room, now_unix_s: float) -> Iterator[Sign]:
    """The ends of logs; answers what of this attempt's lines says who failed."""
    most_bytes = scene.settings.evidence.log_tail_bytes
    for name, output, source in _outputs(scene.facts, scene.local_ranks):
        room.write(name, scene.redaction.text(read_tail(output.path, most_bytes)))
        of_attempt = read_tail(output.path, most_bytes, output.begins)
        for error in find_errors(scene.redaction.text(of_attempt), source, now_unix_s):
            yield sign_of_line(scene.node, error, name)
    dumps = scene.places.evidence(scene.plan.attempt)
    for local_rank, rank in sorted(scene.local_ranks.items()):
        fatal = read_tail(dumps / f"fatal-local-{local_rank}.txt", most_bytes)
        if fatal.strip():
            room.write(f"fatal-local-{local_rank}.txt", scene.redaction.text(fatal))
            yield sign_of_words(rank, scene.node, fatal.partition("\n")[0], "fatal signal")
    log = read_tail(scene.places.sidecar_log, most_bytes)
    if len(log) < most_bytes:  # rotated a moment ago, perhaps
        log = read_tail(scene.places.earlier_sidecar_log, most_bytes - len(log)) + log
    room.write("sidecar.log", scene.redaction.text(log))


def _outputs(
    facts: Mapping[int, RankFacts], local_ranks: Mapping[int, int]
) -> Iterator[tuple[str, Output, LogSource]]:
    """Every file that ranks print into, once: name in the bundle, where it is, whose it is."""
    users: dict[tuple[int, int], list[tuple[int, str, Output]]] = {}
    for rank, one in sorted(facts.items()):
        for stream, output in sorted(one.outputs.items()):
            users.setdefault(output.file, []).append((rank, stream, output))
    for number, shared in enumerate(users.values()):
        ranks = {rank for rank, _, _ in shared}
        rank, stream, output = shared[0]
        begins = min(each.begins for _, _, each in shared)
        if len(ranks) > 1:
            yield (
                f"output-{number}.log",
                dataclasses.replace(output, begins=begins),
                LogSource(ranks=local_ranks),
            )
        else:
            name = "output" if len(shared) > 1 else stream
            yield f"rank-{rank}-{name}.log", output, LogSource(rank)


def with_exits(scene: IncidentContext, agents: Mapping[str, str]) -> IncidentContext:
    """The scene with what launchers have told since of how the attempt's ranks ended."""
    told = {
        name: text
        for name, text in agents.items()
        if (agent := decode(AgentReport, text)) is not None
        and agent.attempt == scene.plan.attempt
        and agent.exits
    }
    known = {**scene.records.get("agents", {}), **told}
    return dataclasses.replace(scene, records={**scene.records, "agents": known})


def _signs_of_exits(scene: IncidentContext) -> Iterator[Sign]:
    """How every node's ranks ended: as their launchers told, else as their sidecars saw it."""
    exits = [
        (agent.node, exit_)
        for text in scene.records.get("agents", {}).values()
        if (agent := decode(AgentReport, text)) is not None and agent.attempt == scene.plan.attempt
        for exit_ in agent.exits
    ]
    yield from (sign for one in exits if (sign := sign_of_exit(*one)) is not None)
    blame = find_culprit(exits)
    if blame is not None and blame.exit.exit_code == 0:
        yield sign_of_leaver(blame)
    told = {exit_.rank for _, exit_ in exits}
    for text in scene.records.get("nodes", {}).values():
        node = decode(NodeReport, text)
        ranks = node.ranks if node is not None and node.attempt == scene.plan.attempt else []
        yield from (
            sign
            for rank in ranks
            if node is not None
            and rank.rank not in told
            and (sign := sign_of_report(node.node, rank)) is not None
        )


def _signs_of_words(scene: IncidentContext) -> Iterator[Sign]:
    for rank, words in sorted(scene.last_words.items()):
        yield sign_of_words(rank, scene.node, words, "last words")


def _first_error(signs: Iterable[Sign]) -> dict[str, Any]:
    signs = list(signs)
    failures = order(signs)
    return {
        "confidence": confidence(failures),
        "order": [dataclasses.asdict(failure) for failure in failures],
        "signs": [dataclasses.asdict(sign) for sign in signs],
    }


def _kernel_log(read_kernel_lines: ReadKernelLines, now_s: float) -> str:
    try:
        lines = read_kernel_lines(now_s - BEFORE_S)
    except OSError as error:
        return f"the kernel's log can't be read: {os.strerror(error.errno or 0)}\n"
    return "".join(f"{line}\n" for line in lines) or "the kernel said nothing\n"


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, default=str)
