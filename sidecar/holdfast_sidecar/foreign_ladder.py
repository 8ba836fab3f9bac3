"""The rungs between our timeouts and those of torch, NCCL and whoever schedules the job. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from holdfast_sidecar.ladder import Rung
from holdfast_sidecar.settings import Settings

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
class Surroundings:
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


def foreign_rungs(settings: Settings, around: Surroundings) -> list[Rung]:
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


def _beside_silence(settings: Settings, around: Surroundings) -> Iterator[Rung]:
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


def _graces(settings: Settings, around: Surroundings) -> list[Rung]:
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
) -> Surroundings:
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
    return Surroundings(
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
