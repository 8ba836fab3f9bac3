"""Which settings fit together: the timeout ladder, ranges, choices. Pure.

Each rung must end before the one above it starts to doubt; a ladder in the wrong order makes a
healthy node look lost, or lets two parts act on the same trouble.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from holdfast_sidecar.config.addresses import parse_advertise
from holdfast_sidecar.config.settings import (
    OVERSLEPT_S,
    NodesSettings,
    Settings,
    SidecarSettings,
    StallSettings,
)

# A command of the user's as the settings have it: its words, and the places in them. Pure.

NAMES = ("node", "reason", "gpu", "remedy")

PLACE = re.compile(r"\{(" + "|".join(NAMES) + r")\}")
"""What stands in a command for what it is about."""

_LIKE_A_PLACE = re.compile(r"\{([A-Za-z_]+)\}")
"""What was most likely meant as one. JSON or a shell's own braces hold more than a name."""


def split(command: str) -> list[str]:
    """Its words, as a shell would split them. Raises ValueError where that can't be done, or there
    is none."""
    words = shlex.split(command)
    if not words:
        raise ValueError("no command is set")
    return words


def problem(command: str) -> str:
    """Why it could never be run; empty: nothing is wrong with its form, or none is set."""
    if not command:
        return ""
    try:
        words = split(command)
    except ValueError as error:
        return f"can't be split into words: {error}"
    for name in (name for word in words for name in _LIKE_A_PLACE.findall(word)):
        if name not in NAMES:
            known = ", ".join(f"{{{one}}}" for one in NAMES)
            return f"names {{{name}}}, for which nothing is known; known: {known}"
    return ""


def program(command: str) -> str:
    """What it starts; empty where none is set, or that depends on what it is about."""
    first = split(command)[0] if command else ""
    return "" if PLACE.search(first) else first


MODES = ("act", "suggest", "observe")
LEAST_BUNDLE_BYTES = 2**20
"""A page and the stacks of a few ranks; with less there is no evidence."""
PEER = ("off", "async", "sync")


@dataclass(frozen=True)
class Rung:
    """`lower` (seconds) must be below `upper`; `why` says what breaks when it is not."""

    lower_name: str
    lower_s: float
    upper_name: str
    upper_s: float
    why: str

    @property
    def holds(self) -> bool:
        """Whether the rungs are in order."""
        return self.lower_s < self.upper_s


def rungs(settings: Settings) -> list[Rung]:
    """The timeout ladder of these settings, lowest first."""
    sidecar, policy, stall = settings.sidecar, settings.policy, settings.stall
    checkpoint = settings.checkpoint
    return [
        Rung(
            "three heartbeats (3 * sidecar.heartbeat_s)",
            3 * sidecar.heartbeat_s,
            "sidecar.node_timeout_s",
            sidecar.node_timeout_s,
            "one late heartbeat would look like a lost node",
        ),
        Rung(
            "sidecar.node_timeout_s",
            sidecar.node_timeout_s,
            "policy.join_timeout_s",
            policy.join_timeout_s,
            "an attempt would be given up before a lost node is noticed",
        ),
        Rung(
            "three heartbeats (3 * sidecar.heartbeat_s)",
            3 * sidecar.heartbeat_s,
            "sidecar.lease_s",
            sidecar.lease_s,
            "a healthy leader would lose its lease between two renewals",
        ),
        Rung(
            "a call and a heartbeat (redis.timeout_s + sidecar.heartbeat_s)",
            settings.redis.timeout_s + sidecar.heartbeat_s,
            "sidecar.lease_s",
            sidecar.lease_s,
            "one slow call would cost the leader its lease",
        ),
        Rung(
            "sidecar.lease_s",
            sidecar.lease_s,
            "sidecar.grace_s",
            sidecar.grace_s,
            "a sidecar would leave before a new leader has read its last report",
        ),
        Rung(
            "sidecar.tick_s",
            sidecar.tick_s,
            "the gap after which a sidecar takes itself for having slept",
            OVERSLEPT_S,
            "no silence would ever be counted",
        ),
        Rung(
            "a whole save (checkpoint.deadline_s + checkpoint.write_timeout_s)",
            checkpoint.deadline_s + checkpoint.write_timeout_s,
            "stall.save_s",
            stall.save_s,
            "ranks that still may save would be told as silent",
        ),
        Rung(
            "snapshot.peer_timeout_s",
            settings.snapshot.peer_timeout_s,
            "stall.save_s",
            stall.save_s,
            "ranks that wait for their copy on another node would be told as silent",
        ),
        Rung(
            "evidence.native_s",
            settings.evidence.native_s,
            "policy.evidence_timeout_s",
            policy.evidence_timeout_s,
            "a culprit would be ended while py-spy still looks at it",
        ),
        *_limits_of_silence(stall, policy.evidence_timeout_s),
    ]


def _limits_of_silence(stall: StallSettings, evidence_timeout_s: float) -> Iterator[Rung]:
    """Those that a user has set; without them silence is never acted on."""
    act, data = ("stall.act_after_s", stall.act_after_s), stall.data_stall_timeout_s
    if stall.act_after_s:
        early = "silence would be acted on before it is declared"
        yield Rung("stall.floor_s", stall.floor_s, *act, early)
        again = "ranks would be judged again while evidence is still being kept"
        yield Rung("policy.evidence_timeout_s", evidence_timeout_s, *act, again)
    if stall.act_after_s and data:
        sooner = "ranks whose loader is at work would be ended before those that are only silent"
        yield Rung(*act, "stall.data_stall_timeout_s", data, sooner)


def problems(settings: Settings) -> list[str]:
    """One line for everything that can't work; empty when the settings fit together.

    Who would read along is not asked here: most commands serve nothing, and must go on doing what
    they do under settings by which no sidecar serves.
    """
    return [*_out_of_order(settings), *misfits(settings)]


def misfits(settings: Settings) -> list[str]:
    """Whatever can't work beside the ladder: ranges, choices and commands."""
    return [
        *_out_of_range(settings),
        *_unknown_choices(settings),
        *_unserved(settings.sidecar),
        *_broken_commands(settings.nodes),
    ]


def _out_of_order(settings: Settings) -> Iterator[str]:
    for rung in rungs(settings):
        if not rung.holds:
            yield (
                f"timeouts in the wrong order: {rung.lower_name} = {rung.lower_s:g} s must be "
                f"below {rung.upper_name} = {rung.upper_s:g} s, else {rung.why}"
            )


def _out_of_range(settings: Settings) -> Iterator[str]:
    positive = {
        "redis.timeout_s": settings.redis.timeout_s,
        "sidecar.tick_s": settings.sidecar.tick_s,
        "sidecar.heartbeat_s": settings.sidecar.heartbeat_s,
        "policy.budget_window_s": settings.policy.budget_window_s,
        "policy.blames_half_life_s": settings.policy.blames_half_life_s,
        "gate.test_timeout_s": settings.gate.test_timeout_s,
        "nodes.hook_timeout_s": settings.nodes.hook_timeout_s,
        "gpu.every_s": settings.gpu.every_s,
        "gpu.deadline_s": settings.gpu.deadline_s,
        "host.every_s": settings.host.every_s,
        "host.storage_every_s": settings.host.storage_every_s,
        "host.hardware_every_s": settings.host.hardware_every_s,
        "checkpoint.deadline_s": settings.checkpoint.deadline_s,
        "checkpoint.write_timeout_s": settings.checkpoint.write_timeout_s,
        "snapshot.most_share": settings.snapshot.most_share,
        "snapshot.memory_share": settings.snapshot.memory_share,
        "snapshot.peer_timeout_s": settings.snapshot.peer_timeout_s,
    }
    for name, value in positive.items():
        if value <= 0:
            yield f"{name} = {value:g} must be above zero"
    shares = {
        "policy.quarantine_share": settings.policy.quarantine_share,
        "snapshot.most_share": settings.snapshot.most_share,
        "snapshot.memory_share": settings.snapshot.memory_share,
    }
    for name, value in shares.items():
        if value > 1:
            yield f"{name} = {value:g} is a share: it must be at most 1"
    for name, value, least in _at_least(settings):
        if value < least:
            yield f"{name} = {value:g} must be at least {least:g}"


def _at_least(settings: Settings) -> list[tuple[str, float, float]]:
    policy, checkpoint = settings.policy, settings.checkpoint
    return [
        ("policy.max_restarts", policy.max_restarts, -1),
        ("policy.budget", policy.budget, 0),
        ("policy.backoff_limit_s", policy.backoff_limit_s, policy.backoff_s),
        ("policy.same_signature_limit", policy.same_signature_limit, 1),
        ("policy.surroundings_backoff_s", policy.surroundings_backoff_s, 0),
        ("policy.stepless_limit", policy.stepless_limit, 2),
        ("policy.requeue_limit", policy.requeue_limit, 1),
        ("policy.blames_limit", policy.blames_limit, 2),
        ("policy.quarantine_share", policy.quarantine_share, 0),
        ("policy.stuck_limit", policy.stuck_limit, 2),
        ("gate.wait_s", settings.gate.wait_s, 0),
        ("gate.expected_gpus", settings.gate.expected_gpus, 0),
        ("gate.least_room_bytes", settings.gate.least_room_bytes, 0),
        ("fabric.drop_s", settings.fabric.drop_s, 0),
        ("fabric.flaps", settings.fabric.flaps, 1),
        ("fabric.ports", settings.fabric.ports, 0),
        ("fabric.rate_bytes_per_s", settings.fabric.rate_bytes_per_s, 0),
        ("stall.factor", settings.stall.factor, 1),
        ("stall.limit_s", settings.stall.limit_s, 0),
        ("stall.act_after_s", settings.stall.act_after_s, 0),
        ("stall.nccl_act_after_s", settings.stall.nccl_act_after_s, 0),
        ("stall.data_stall_timeout_s", settings.stall.data_stall_timeout_s, 0),
        ("straggler.least_slowdown", settings.straggler.least_slowdown, 0),
        ("numbers.nonfinite_steps", settings.numbers.nonfinite_steps, 0),
        ("numbers.spike_z", settings.numbers.spike_z, 1),
        ("numbers.spike_steps", settings.numbers.spike_steps, 1),
        ("numbers.skip_batches", settings.numbers.skip_batches, 0),
        ("checkpoint.every_steps", checkpoint.every_steps, 0),
        ("checkpoint.keep", checkpoint.keep, 1),
        ("checkpoint.load_failures", checkpoint.load_failures, 1),
        ("checkpoint.most_every_s", checkpoint.most_every_s, checkpoint.least_every_s),
        ("snapshot.every_steps", settings.snapshot.every_steps, -1),
        ("snapshot.slots", settings.snapshot.slots, 1),
        ("evidence.keep", settings.evidence.keep, 1),
        ("evidence.most_bytes", settings.evidence.most_bytes, LEAST_BUNDLE_BYTES),
    ]


def _unknown_choices(settings: Settings) -> Iterator[str]:
    if settings.sidecar.mode not in MODES:
        yield f"sidecar.mode = {settings.sidecar.mode!r} must be one of {', '.join(MODES)}"
    of_faults = {f"modes.{fault}": mode for fault, mode in vars(settings.modes).items()}
    for name, mode in {**of_faults, "gate.mode": settings.gate.mode}.items():
        if mode and mode not in MODES:
            yield f"{name} = {mode!r} must be empty or one of {', '.join(MODES)}"
    if settings.snapshot.peer not in PEER:
        yield f"snapshot.peer = {settings.snapshot.peer!r} must be one of {', '.join(PEER)}"
    if not _is_address(settings.snapshot.peer_listen):
        yield _no_address("snapshot.peer_listen", settings.snapshot.peer_listen)


def _unserved(sidecar: SidecarSettings) -> Iterator[str]:
    """What is no way to serve metrics."""
    if not _is_address(sidecar.listen):
        yield _no_address("sidecar.listen", sidecar.listen)
    elif bool(sidecar.tls_cert_file) != bool(sidecar.tls_key_file):
        yield "sidecar.tls_cert_file and sidecar.tls_key_file go together: set both"
    try:
        parse_advertise(sidecar.advertise)
    except ValueError as error:
        yield f"sidecar.advertise = {error}"


def _is_address(listen: str) -> bool:
    host, colon, port = listen.rpartition(":")
    return bool(colon and host) and port.isdecimal() and int(port) <= 65535


def _no_address(name: str, listen: str) -> str:
    return f"{name} = {listen!r} must be address:port (port 0: any)"


def _broken_commands(nodes: NodesSettings) -> Iterator[str]:
    """They are run in the middle of a fault, which is no time to find out."""
    for name, command in (("on_quarantine", nodes.on_quarantine), ("on_return", nodes.on_return)):
        if wrong := problem(command):
            yield f"nodes.{name} = {command!r} {wrong}"


# The rungs between our timeouts and those of torch, NCCL and whoever schedules the job. Pure.

NCCL_S = 600.0
GLOO_S = 1800.0
"""What torch gives a process group whose script names no timeout."""

MONITOR_S = 480.0
"""TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC unless set: NCCL's watchdog itself must move this often."""

TORCHRUN_S = 30.0
"""From torchrun's own SIGTERM until it kills its ranks; nothing changes it."""

POD_S = 30.0
"""terminationGracePeriodSeconds unless set."""

LINK_TIMEOUT, LINK_RETRIES = 20, 7
"""NCCL_IB_TIMEOUT and NCCL_IB_RETRY_CNT unless set. InfiniBand counts in 4.096 µs times a power of
two: a send is given up after some 30 s."""


@dataclass(frozen=True)
class ForeignTimeouts:
    """Timeouts of others, seconds. None: does not apply here."""

    nccl_s: float = NCCL_S
    gloo_s: float = GLOO_S
    monitor_s: float | None = MONITOR_S
    link_s: float = 0.0
    kill_wait_s: float | None = None
    """Slurm's, from SIGTERM to SIGKILL."""
    slurmd_s: float | None = None
    """Slurm's, until a silent node is down and its job with it."""
    pod_s: float | None = None
    """Kubernetes', from SIGTERM to SIGKILL."""


def foreign_rungs(settings: Settings, around: ForeignTimeouts) -> list[Rung]:
    """Rungs that must be in order wherever they apply."""
    rungs = list(_beside_silence(settings, around)) if settings.stall.act_after_s else []
    if around.slurmd_s is not None:
        rungs.append(
            Rung(
                "sidecar.node_timeout_s",
                settings.sidecar.node_timeout_s,
                "Slurm's patience with a silent node (SlurmdTimeout)",
                around.slurmd_s,
                "Slurm would end the job before it goes on without the node",
            )
        )
    return rungs + _graces(settings, around)


def _beside_silence(settings: Settings, around: ForeignTimeouts) -> Iterator[Rung]:
    """Where the user set a limit for silence."""
    judged = settings.stall.act_after_s + settings.policy.evidence_timeout_s
    named = "acting on silence (stall.act_after_s + policy.evidence_timeout_s)"
    first = "torch would end the ranks before the culprit is named and evidence is kept"
    yield Rung(named, judged, "NCCL's timeout for collectives", around.nccl_s, first)
    yield Rung(named, judged, "gloo's timeout for collectives", around.gloo_s, first)
    yield Rung(
        "NCCL's retries over InfiniBand (NCCL_IB_TIMEOUT, NCCL_IB_RETRY_CNT)",
        around.link_s,
        "stall.act_after_s",
        settings.stall.act_after_s,
        "a link that heals would be taken for a hang",
    )
    if around.monitor_s is not None:
        name = "NCCL's monitor (TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC)"
        yield Rung(named, judged, name, around.monitor_s, first)


def torchrun_rung(settings: Settings) -> Rung:
    """Matters to those alone who start the job by plain torchrun."""
    return _grace(settings, "plain torchrun's grace for its ranks", TORCHRUN_S)


def _graces(settings: Settings, around: ForeignTimeouts) -> list[Rung]:
    graces = (
        ("Slurm's grace (KillWait)", around.kill_wait_s),
        ("Kubernetes' grace (terminationGracePeriodSeconds)", around.pod_s),
    )
    return [_grace(settings, name, after_s) for name, after_s in graces if after_s is not None]


def _grace(settings: Settings, name: str, after_s: float) -> Rung:
    return Rung(
        "saving a preempted job (policy.preemption_grace_s)",
        settings.policy.preemption_grace_s,
        name,
        after_s,
        "the job would be killed while it is being saved",
    )


def parse_surroundings(
    environ: Mapping[str, str],
    slurm: Mapping[str, float],
    group_timeout_s: float | None = None,
    grace_s: float | None = None,
) -> ForeignTimeouts:
    """What this environment says; `slurm`: as `parse_slurm` read it.

    group_timeout_s: what the script gives init_process_group, which nothing else tells; grace_s:
    what the scheduler leaves after SIGTERM, where it does not say so itself.
    """
    monitored = environ.get("TORCH_NCCL_ENABLE_MONITORING", "1") != "0"
    monitor_s = _number(environ, "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", MONITOR_S)
    timeout = _number(environ, "NCCL_IB_TIMEOUT", LINK_TIMEOUT)
    retries = _number(environ, "NCCL_IB_RETRY_CNT", LINK_RETRIES)
    in_pod = "KUBERNETES_SERVICE_HOST" in environ
    given = grace_s if grace_s is not None else POD_S
    return ForeignTimeouts(
        nccl_s=group_timeout_s or NCCL_S,
        gloo_s=group_timeout_s or GLOO_S,
        monitor_s=monitor_s if monitored else None,
        link_s=round(4.096e-6 * 2.0 ** min(timeout, 31) * retries, 1),
        kill_wait_s=slurm.get("KillWait"),
        slurmd_s=slurm.get("SlurmdTimeout"),
        pod_s=given if in_pod or grace_s is not None else None,
    )


def parse_slurm(text: str) -> dict[str, float]:
    """Seconds by name, from `scontrol show config`."""
    found = {}
    for line in text.splitlines():
        name, separator, value = line.partition("=")
        words = value.split()
        if separator and len(words) == 2 and words[1] == "sec" and words[0].isdecimal():
            found[name.strip()] = float(words[0])
    return found


def _number(environ: Mapping[str, str], name: str, default: float) -> float:
    try:
        return float(environ.get(name, ""))
    except ValueError:
        return default
